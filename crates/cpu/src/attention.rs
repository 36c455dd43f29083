//! Attention with an online softmax: scores exist only for a few queries and keys at a time.
//!
//! Everything is transposed: a vector holds one number of several queries. A task takes a block of queries of one
//! head and walks the keys in blocks of [`KEY_BLOCK`]: `scores^T = k q^T` (keys are the rows, queries the panel),
//! softmax statistics lane by lane, `result^T += v^T scores^T`. So neither keys nor values need packing, and no sum
//! runs across lanes. Scores are `scale * q` times `k`, in f32; a masked score is -inf. All blocks depend on the shape
//! only.

use half::bf16;
use plimsoll_device::AttentionShape;

use crate::isa::Isa;
use crate::micro::{Rows, Start, Target, multiply_tile};
use crate::numbers::{Numbers, NumbersMut};
use crate::simd::{Element, Simd, WithSimd};
use crate::tasks::{SharedMut, for_each_task, scratch_len};

/// Keys whose scores exist at once, at most.
const KEY_BLOCK: usize = 128;
/// Numbers of the keys (and of the values) that a task holds, about: for both, half of an L2 cache.
const BLOCK_NUMBERS: usize = 32 << 10;
/// Panels of queries in a task, at most.
const PANELS_MAX: usize = 8;
/// Features that are summed in registers for a score, so that a panel of queries stays in the L1 cache.
const DIM_BLOCK: usize = 256;

/// Attention of `q` `[batch, q_len, heads * head_dim]` to `k` and `v` `[batch, kv_len, heads * head_dim]`; all of one
/// dtype; `scratch` has [`attention_scratch_len`] numbers.
///
/// # Panics
/// If a length is wrong or the dtypes differ: a bug of the caller.
#[allow(clippy::too_many_arguments)]
pub(crate) fn attention(
    isa: Isa,
    threads: usize,
    shape: &AttentionShape,
    q: Numbers<'_>,
    k: Numbers<'_>,
    v: Numbers<'_>,
    y: NumbersMut<'_>,
    scratch: &mut [f32],
) {
    match (q, k, v, y) {
        (Numbers::F32(q), Numbers::F32(k), Numbers::F32(v), NumbersMut::F32(y)) => {
            attend(isa, threads, shape, q, k, v, y, scratch);
        }
        (Numbers::Bf16(q), Numbers::Bf16(k), Numbers::Bf16(v), NumbersMut::Bf16(y)) => {
            attend::<bf16>(isa, threads, shape, q, k, v, y, scratch);
        }
        (q, k, v, y) => panic!("attention of {}, {}, {} into {}", q.dtype(), k.dtype(), v.dtype(), y.dtype()),
    }
}

/// Scratch numbers that [`attention`] needs.
pub(crate) fn attention_scratch_len(isa: Isa, threads: usize, shape: &AttentionShape) -> usize {
    let cut = Cut::new(isa, shape);
    scratch_len(threads, cut.task_count, cut.worker_len())
}

/// How the work is cut up.
struct Cut {
    /// Queries of a panel: two vectors.
    panel_columns: usize,
    /// Panels of a task.
    panels: usize,
    /// Tasks of one head of one sequence.
    query_blocks: usize,
    task_count: usize,
    /// Keys of a block.
    key_block: usize,
    head_dim: usize,
}

impl Cut {
    fn new(isa: Isa, shape: &AttentionShape) -> Self {
        let panel_columns = 2 * isa.lanes();
        let panels_all = shape.q_len.div_ceil(panel_columns).max(1);
        let rows_max = BLOCK_NUMBERS / shape.head_dim.max(1);
        let panels_max = (rows_max / panel_columns).clamp(2, PANELS_MAX);
        let query_blocks = panels_all.div_ceil(panels_max);
        Self {
            panel_columns,
            panels: panels_all.div_ceil(query_blocks),
            query_blocks,
            task_count: shape.batch * shape.heads * query_blocks,
            key_block: rows_max.clamp(16, KEY_BLOCK).min(shape.kv_len),
            head_dim: shape.head_dim,
        }
    }

    /// Keys, values, scores, and per panel queries, result, maximum and sum.
    fn worker_len(&self) -> usize {
        let panels_len = self.panels * self.panel_columns * (2 * self.head_dim + 2);
        self.key_block * (2 * self.head_dim + self.panel_columns + 1) + panels_len
    }
}

#[allow(clippy::too_many_arguments)]
fn attend<E: Element>(
    isa: Isa,
    threads: usize,
    shape: &AttentionShape,
    q: &[E],
    k: &[E],
    v: &[E],
    y: &mut [E],
    scratch: &mut [f32],
) {
    let cut = Cut::new(isa, shape);
    let columns = shape.heads * shape.head_dim;
    assert!(shape.kv_len > 0, "attention to no keys");
    assert_eq!(q.len(), shape.batch * shape.q_len * columns, "numbers of the queries");
    assert_eq!(k.len(), shape.batch * shape.kv_len * columns, "numbers of the keys");
    assert_eq!(v.len(), k.len(), "numbers of the values");
    assert_eq!(y.len(), q.len(), "numbers of the output");
    if y.is_empty() {
        return;
    }
    let y = SharedMut::new(y);
    for_each_task(threads, cut.task_count, scratch, cut.worker_len(), |task_idx, scratch| {
        let (pair, block) = (task_idx / cut.query_blocks, task_idx % cut.query_blocks);
        let (sequence, head) = (pair / shape.heads, pair % shape.heads);
        let first_query = block * cut.panels * cut.panel_columns;
        if first_query >= shape.q_len {
            return;
        }
        let task = HeadTask {
            cut: &cut,
            shape,
            k: &k[sequence * shape.kv_len * columns + head * shape.head_dim..],
            v: &v[sequence * shape.kv_len * columns + head * shape.head_dim..],
            first_query,
            query_count: (cut.panels * cut.panel_columns).min(shape.q_len - first_query),
            q: &q[(sequence * shape.q_len + first_query) * columns + head * shape.head_dim..],
            y: &y,
            y_start: (sequence * shape.q_len + first_query) * columns + head * shape.head_dim,
            scratch,
        };
        isa.run(task);
    });
}

/// A block of queries of one head. The slices start at the head's first number.
struct HeadTask<'a, E> {
    cut: &'a Cut,
    shape: &'a AttentionShape,
    q: &'a [E],
    k: &'a [E],
    v: &'a [E],
    first_query: usize,
    query_count: usize,
    y: &'a SharedMut<'a, E>,
    y_start: usize,
    scratch: &'a mut [f32],
}

impl<E: Element> WithSimd for HeadTask<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (cut, shape, dim) = (self.cut, self.shape, self.shape.head_dim);
        let row_stride = shape.heads * dim;
        let panel_columns = 2 * S::LANES;
        let panel_len = panel_columns * dim;
        let (keys, scratch) = self.scratch.split_at_mut(cut.key_block * dim);
        let (values, scratch) = scratch.split_at_mut(cut.key_block * dim);
        let (scores, scratch) = scratch.split_at_mut(cut.key_block * panel_columns);
        let (offsets, scratch) = scratch.split_at_mut(cut.key_block);
        let (queries, scratch) = scratch.split_at_mut(cut.panels * panel_len);
        let (results, scratch) = scratch.split_at_mut(cut.panels * panel_len);
        let statistics = &mut scratch[..2 * cut.panels * panel_columns];
        let offsets: &mut [u32] = bytemuck::cast_slice_mut(offsets);
        for (row, offset) in offsets.iter_mut().enumerate() {
            *offset = (row * dim) as u32;
        }

        let panels = self.query_count.div_ceil(panel_columns);
        for query in 0..panels * panel_columns {
            let panel = &mut queries[query / panel_columns * panel_len..][..panel_len];
            let lane = query % panel_columns;
            // Lanes beyond the last query compute something that nobody reads.
            let row = if query < self.query_count { Some(&self.q[query * row_stride..][..dim]) } else { None };
            for d in 0..dim {
                panel[d * panel_columns + lane] = row.map_or(0.0, |row| row[d].to_f32() * shape.scale);
            }
        }
        // Of each panel: the largest scores so far, then the sums.
        for statistics in statistics.chunks_exact_mut(2 * panel_columns) {
            let (largest, sums) = statistics.split_at_mut(panel_columns);
            largest.fill(f32::NEG_INFINITY);
            sums.fill(0.0);
        }
        results.fill(0.0);

        let keys_seen = if shape.causal { shape.kv_len.min(self.first_query + self.query_count) } else { shape.kv_len };
        for first_key in (0..keys_seen).step_by(cut.key_block) {
            let key_count = cut.key_block.min(keys_seen - first_key);
            for key in 0..key_count {
                let start = (first_key + key) * row_stride;
                copy(simd, &self.k[start..][..dim], &mut keys[key * dim..][..dim]);
                copy(simd, &self.v[start..][..dim], &mut values[key * dim..][..dim]);
            }
            let key_rows = Rows { numbers: keys, offsets, depth: dim, segments: 1 };
            for panel in 0..panels {
                let first_query = self.first_query + panel * panel_columns;
                let key_count = if shape.causal {
                    key_count.min((first_query + panel_columns).saturating_sub(first_key))
                } else {
                    key_count
                };
                if key_count == 0 {
                    continue;
                }
                let query_panel = &queries[panel * panel_len..][..panel_len];
                score(simd, &key_rows, key_count, query_panel, scores);
                if shape.causal {
                    mask(panel_columns, first_query, first_key, &mut scores[..key_count * panel_columns]);
                }
                let statistics = &mut statistics[panel * 2 * panel_columns..][..2 * panel_columns];
                let corrections = weigh(simd, &mut scores[..key_count * panel_columns], statistics);
                let result = &mut results[panel * panel_len..][..panel_len];
                accumulate(simd, &values[..key_count * dim], &scores[..key_count * panel_columns], corrections, result);
            }
        }

        for panel in 0..panels {
            let sums = &statistics[(2 * panel + 1) * panel_columns..][..panel_columns];
            for result in results[panel * panel_len..][..panel_len].chunks_exact_mut(panel_columns) {
                for (result, sums) in result.chunks_exact_mut(S::LANES).zip(sums.chunks_exact(S::LANES)) {
                    f32::store(simd, result, simd.div(f32::load(simd, result), f32::load(simd, sums)));
                }
            }
        }
        for query in 0..self.query_count {
            let (panel, lane) = (query / panel_columns, query % panel_columns);
            let result = &results[panel * panel_len..][..panel_len];
            // SAFETY: this query's numbers of this head belong to this task alone, and lie within `y`.
            let y = unsafe { std::slice::from_raw_parts_mut(self.y.get(self.y_start + query * row_stride), dim) };
            for (y, result) in y.iter_mut().zip(result.chunks_exact(panel_columns)) {
                *y = E::from_f32(result[lane]);
            }
        }
    }
}

/// Copies numbers as f32.
#[inline(always)]
fn copy<S: Simd, E: Element>(simd: S, from: &[E], to: &mut [f32]) {
    for (from, to) in from.chunks(S::LANES).zip(to.chunks_mut(S::LANES)) {
        f32::store(simd, to, E::load(simd, from));
    }
}

/// `scores[key][query] = k q`.
#[inline(always)]
fn score<S: Simd>(simd: S, keys: &Rows<'_>, key_count: usize, queries: &[f32], scores: &mut [f32]) {
    let panel_columns = 2 * S::LANES;
    assert!(scores.len() >= key_count * panel_columns, "room for the scores");
    assert!(keys.numbers.len() >= key_count * keys.depth && keys.offsets.len() >= key_count, "keys");
    assert_eq!(queries.len(), keys.depth * panel_columns, "a panel of queries");
    for from in (0..keys.depth).step_by(DIM_BLOCK) {
        let to = keys.depth.min(from + DIM_BLOCK);
        let queries = &queries[from * panel_columns..to * panel_columns];
        for (tile_idx, key) in (0..key_count).step_by(S::TILE_ROWS).enumerate() {
            let target = Target {
                start: scores[key * panel_columns..].as_mut_ptr(),
                stride: panel_columns,
                columns: panel_columns,
                base: if from == 0 { Start::Zero } else { Start::Stored },
            };
            let row_count = S::TILE_ROWS.min(key_count - key);
            // SAFETY: the lengths of keys, queries and scores were checked above; no offset is a row of zeros.
            unsafe { multiply_tile(simd, keys, tile_idx, row_count, (from, to), queries.as_ptr(), target) };
        }
    }
}

/// Hides the keys behind each query.
#[inline(always)]
fn mask(panel_columns: usize, first_query: usize, first_key: usize, scores: &mut [f32]) {
    for (key, scores) in scores.chunks_exact_mut(panel_columns).enumerate() {
        let hidden_lanes = (first_key + key).saturating_sub(first_query).min(panel_columns);
        scores[..hidden_lanes].fill(f32::NEG_INFINITY);
    }
}

/// Turns scores into weights `e^(score - largest)`, and updates the largest scores and the sums of weights. Returns
/// the factors on what was summed before.
#[inline(always)]
fn weigh<S: Simd>(simd: S, scores: &mut [f32], statistics: &mut [f32]) -> [S::V; 2] {
    let mut corrections = [simd.zero(); 2];
    for (half, correction) in corrections.iter_mut().enumerate() {
        let lanes = half * S::LANES;
        let before = f32::load(simd, &statistics[lanes..]);
        let mut largest = before;
        for scores in scores.chunks_exact(2 * S::LANES) {
            largest = simd.max(f32::load(simd, &scores[lanes..]), largest);
        }
        // Where all scores are -inf, so far, their weights are zero.
        let minus_infinity = simd.splat(f32::NEG_INFINITY);
        let base = simd.select_less(minus_infinity, largest, largest, simd.zero());
        let mut sum = simd.zero();
        for scores in scores.chunks_exact_mut(2 * S::LANES) {
            let weight = simd.exp_nonpositive(simd.sub(f32::load(simd, &scores[lanes..]), base));
            f32::store(simd, &mut scores[lanes..], weight);
            sum = simd.add(sum, weight);
        }
        *correction = simd.exp_nonpositive(simd.sub(before, base));
        let sum_before = f32::load(simd, &statistics[2 * S::LANES + lanes..]);
        f32::store(simd, &mut statistics[lanes..], largest);
        f32::store(simd, &mut statistics[2 * S::LANES + lanes..], simd.fma(sum_before, *correction, sum));
    }
    corrections
}

/// `result[d][query] = result[d][query] * correction[query] + sum of values[key][d] * weights[key][query]`.
#[inline(always)]
fn accumulate<S: Simd>(simd: S, values: &[f32], weights: &[f32], corrections: [S::V; 2], result: &mut [f32]) {
    let dim = result.len() / (2 * S::LANES);
    let tiles = dim.div_ceil(S::TILE_ROWS);
    let mut first = 0;
    for tile in 0..tiles {
        let rows = (dim - first).div_ceil(tiles - tile);
        macro_rules! by_row_count {
            ($($count:literal)*) => {
                match rows {
                    $($count if $count <= S::TILE_ROWS => {
                        accumulate_tile::<S, $count>(simd, values, weights, corrections, first, result);
                    })*
                    _ => unreachable!("a tile of {rows} rows"),
                }
            };
        }
        by_row_count!(1 2 3 4 5 6 7 8);
        first += rows;
    }
}

/// [`accumulate`] for features `first..first + R`.
#[inline(always)]
fn accumulate_tile<S: Simd, const R: usize>(
    simd: S,
    values: &[f32],
    weights: &[f32],
    corrections: [S::V; 2],
    first: usize,
    result: &mut [f32],
) {
    let dim = result.len() / (2 * S::LANES);
    let mut sums = [[simd.zero(); 2]; R];
    for (values, weights) in values.chunks_exact(dim).zip(weights.chunks_exact(2 * S::LANES)) {
        let (w0, w1) = (f32::load(simd, weights), f32::load(simd, &weights[S::LANES..]));
        let values = &values[first..][..R];
        for r in 0..R {
            let value = simd.splat(values[r]);
            sums[r][0] = simd.fma(value, w0, sums[r][0]);
            sums[r][1] = simd.fma(value, w1, sums[r][1]);
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        let result = &mut result[(first + r) * 2 * S::LANES..][..2 * S::LANES];
        for (half, sum) in sums.iter().enumerate() {
            let result = &mut result[half * S::LANES..];
            f32::store(simd, result, simd.fma(f32::load(simd, result), corrections[half], *sum));
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_device::DType;

    use super::*;
    use crate::naive::{self, Owned, Seeded, in_pool, isas, scratch};

    fn check(isa: Isa, threads: usize, shape: &AttentionShape, dtype: DType) -> Owned {
        let columns = shape.heads * shape.head_dim;
        let mut seeded = Seeded::new((shape.q_len * 31 + shape.kv_len) as u32);
        let q = seeded.numbers(shape.batch * shape.q_len * columns);
        let k = seeded.numbers(shape.batch * shape.kv_len * columns);
        let v = seeded.numbers(shape.batch * shape.kv_len * columns);
        let [q_owned, k_owned, v_owned] = [&q, &k, &v].map(|numbers| Owned::new(dtype, numbers));
        let mut y = Owned::new(dtype, &vec![f32::NAN; q.len()]);
        let mut scratch = scratch(attention_scratch_len(isa, threads, shape));
        in_pool(threads, || {
            let (q, k, v) = (q_owned.numbers(), k_owned.numbers(), v_owned.numbers());
            attention(isa, threads, shape, q, k, v, y.numbers_mut(), &mut scratch);
        });
        naive::assert_close(&y, &naive::attention(shape, &q, &k, &v), &format!("{isa} {dtype} {shape:?}"));
        y
    }

    #[test]
    fn attention_of_all_sizes_agrees_with_plain_loops() {
        let mut seeded = Seeded::new(3);
        for case in 0..60 {
            let q_len = seeded.size(1..=70);
            let shape = AttentionShape {
                batch: seeded.size(1..=2),
                heads: seeded.size(1..=3),
                head_dim: seeded.size(1..=70),
                q_len,
                kv_len: if case % 3 == 0 { q_len } else { seeded.size(1..=200) },
                causal: case % 2 == 0,
                scale: [0.125, 1.0, 3.0][case % 3],
            };
            for isa in isas() {
                for dtype in [DType::F32, DType::BF16] {
                    check(isa, 1, &shape, dtype);
                }
            }
        }
    }

    #[test]
    fn the_models_head_sizes_agree_with_plain_loops() {
        for (head_dim, q_len, kv_len, causal) in [
            (4, 300, 300, false),
            (8, 256, 77, false),
            (40, 130, 257, false),
            (64, 77, 77, true),
            (80, 300, 300, true),
            (160, 64, 64, false),
            (512, 100, 300, false),
        ] {
            let scale = 1.0 / (head_dim as f32).sqrt();
            let shape = AttentionShape { batch: 1, heads: 2, head_dim, q_len, kv_len, causal, scale };
            for isa in isas() {
                for dtype in [DType::F32, DType::BF16] {
                    check(isa, 1, &shape, dtype);
                }
            }
        }
    }

    #[test]
    fn any_number_of_threads_gives_the_same_bits() {
        for causal in [false, true] {
            let shape =
                AttentionShape { batch: 2, heads: 3, head_dim: 24, q_len: 200, kv_len: 150, causal, scale: 0.2 };
            for isa in isas() {
                for dtype in [DType::F32, DType::BF16] {
                    let bits = check(isa, 1, &shape, dtype).bits();
                    for threads in [2, 3] {
                        assert_eq!(check(isa, threads, &shape, dtype).bits(), bits, "{isa} {dtype} {shape:?}");
                    }
                }
            }
        }
    }

    /// One head of dimension 1, one query of 1, values 0, 1, 2 ..: the result is the weighted mean of the key indexes.
    fn mean_key(isa: Isa, keys: &[f32]) -> f32 {
        let kv_len = keys.len();
        let shape = AttentionShape { batch: 1, heads: 1, head_dim: 1, q_len: 1, kv_len, causal: false, scale: 1.0 };
        let values: Vec<f32> = (0..kv_len).map(|key| key as f32).collect();
        let mut y = [f32::NAN];
        let mut scratch = scratch(attention_scratch_len(isa, 1, &shape));
        let (q, k, v) = (Numbers::F32(&[1.0]), Numbers::F32(keys), Numbers::F32(&values));
        attention(isa, 1, &shape, q, k, v, NumbersMut::F32(&mut y), &mut scratch);
        y[0]
    }

    #[test]
    fn scores_of_any_size_pass_as_softmax_says() {
        for isa in isas() {
            assert_eq!(mean_key(isa, &[-1000.0, 1000.0, -1000.0]), 1.0, "{isa}");
            assert_eq!(mean_key(isa, &[f32::NEG_INFINITY, 5.0, f32::NEG_INFINITY]), 1.0, "{isa}");
            assert!(mean_key(isa, &[f32::NAN, 5.0]).is_nan(), "{isa}");
            assert!(mean_key(isa, &[1.0, f32::INFINITY]).is_nan(), "{isa}");
            // A whole block of keys is hidden before the first one counts.
            let mut keys = vec![f32::NEG_INFINITY; KEY_BLOCK + 2];
            keys[KEY_BLOCK + 1] = -3.0;
            assert_eq!(mean_key(isa, &keys), (KEY_BLOCK + 1) as f32, "{isa}");
        }
    }
}
