//! What ops refuse, and what they do to memory. Their numbers are tested where the kernels are.

use std::sync::Arc;

use expect_test::{Expect, expect};
use plimsoll_cpu::{CpuDevice, CpuOptions};
use plimsoll_device::{Buffer, ByteCount, WeightForm};
use plimsoll_tensor::{Activation, Compute, Conv2dSpec, DType, OpError, Tensor, Weight};

fn compute(budget: ByteCount) -> Compute {
    let device = CpuDevice::new(&CpuOptions { budget, threads: Some(1) }).unwrap();
    Compute::new(Arc::new(device), "activations")
}

fn zeros(cx: &Compute, shape: &[usize]) -> Tensor {
    cx.upload(&vec![0.0; shape.iter().product()], shape, DType::F32).unwrap()
}

fn buffer(cx: &Compute, form: WeightForm) -> Buffer {
    let device = cx.device();
    let account = device.ledger().account("weights");
    device.allocate(&**cx.queue(), account, device.weight_bytes(&form, DType::F32)).unwrap()
}

#[track_caller]
fn check(result: Result<Tensor, OpError>, expected: Expect) {
    expected.assert_eq(&result.expect_err("the op should refuse").to_string());
}

#[test]
fn an_op_names_itself_and_all_shapes_when_they_do_not_fit() {
    let cx = compute(ByteCount::MAX);
    let (x, y) = (zeros(&cx, &[2, 3, 4]), zeros(&cx, &[2, 3, 5]));
    let matrix = WeightForm::Matrix { out: 6, depth: 5, taps: 1 };
    let storage = buffer(&cx, matrix);
    let w = Weight::new(&storage, 0, matrix, DType::F32);

    check(
        cx.add(x.clone(), &y),
        expect!["`add` can't take `x` [2, 3, 4], `y` [2, 3, 5]: the operands must have one shape and one dtype"],
    );
    check(
        cx.linear(&x, w, None),
        expect![
            "`linear` can't take `x` [2, 3, 4], `w` [6, 5]: `w` must be `[out, columns of x]` of the same dtype (`x` is f32, `w` is f32)"
        ],
    );
    check(
        cx.linear(&cx.convert(&y, DType::BF16).unwrap(), w, None),
        expect![
            "`linear` can't take `x` [2, 3, 5], `w` [6, 5]: `w` must be `[out, columns of x]` of the same dtype (`x` is bf16, `w` is f32)"
        ],
    );
    check(cx.linear(&y, w, Some(w)), expect!["`linear` can't take `bias` [6, 5]: `bias` must be a vector of 6"]);
    check(
        cx.attention(&x, &y, &y, 2, false),
        expect![
            "`attention` can't take `q` [2, 3, 4], `k` [2, 3, 5], `v` [2, 3, 5]: batch and width must agree, and `k` and `v` be alike"
        ],
    );
    check(
        cx.attention(&x, &x, &x, 3, false),
        expect![
            "`attention` can't take `q` [2, 3, 4], `k` [2, 3, 4], `v` [2, 3, 4]: the width must be a multiple of 3 heads"
        ],
    );
    check(cx.geglu(&y), expect!["`geglu` can't take `x` [2, 3, 5]: the innermost axis must be even"]);
    check(
        cx.concat(&[&x, &zeros(&cx, &[3, 2, 4])]),
        expect![
            "`concat` can't take `part` [2, 3, 4], `part` [3, 2, 4]: all sizes but the innermost must be equal, and the dtype"
        ],
    );
    check(cx.combine(&[]), expect!["`combine` can't take nothing: there must be a term"]);
    check(x.rows(1, 2), expect!["`rows` can't take `x` [2, 3, 4]: rows 1 to 1 + 2 must be within the outermost axis"]);
    check(
        x.clone().reshape(&[5, 5]),
        expect!["`reshape` can't take `x` [2, 3, 4], `to` [5, 5]: element counts must be equal"],
    );
    check(
        cx.upload(&[], &[0], DType::F32),
        expect!["`upload` can't take `output` [0]: a tensor must have from 1 to 4294967294 numbers; use smaller sizes"],
    );
    check(
        cx.pixel_shuffle(&zeros(&cx, &[1, 2, 2, 6]), 2),
        expect!["`pixel_shuffle` can't take `x` [1, 2, 2, 6]: `x` must be an image with a multiple of 2 x 2 channels"],
    );
    check(
        cx.add_per_batch(x.clone(), &y),
        expect![
            "`add_per_batch` can't take `x` [2, 3, 4], `y` [2, 3, 5]: `y` must be `[batch, channels]` of `x` in its dtype"
        ],
    );
    check(
        cx.convert(&x, DType::F16),
        expect!["`convert` can't take `x` [2, 3, 4]: f16 occurs in files only; use f32 or bf16"],
    );
}

#[test]
fn a_convolution_names_its_geometry_when_the_input_does_not_fit() {
    let cx = compute(ByteCount::MAX);
    let form = WeightForm::Matrix { out: 2, depth: 3, taps: 9 };
    let storage = buffer(&cx, form);
    let w = Weight::new(&storage, 0, form, DType::F32);
    let spec = Conv2dSpec { in_channels: 3, out_channels: 2, kernel: [3, 3], stride: 1, padding: [0; 4] };
    check(
        cx.conv2d(&zeros(&cx, &[1, 4, 4, 5]), &spec, None, w, None),
        expect![
            "`conv2d` can't take `x` [1, 4, 4, 5], `w` [2, 3, 9]: both must have one dtype and fit Conv2dSpec { in_channels: 3, out_channels: 2, kernel: [3, 3], stride: 1, padding: [0, 0, 0, 0] } (`x` is f32, `w` is f32)"
        ],
    );
    check(
        cx.conv2d(&zeros(&cx, &[1, 2, 4, 3]), &spec, None, w, None),
        expect![
            "`conv2d` can't take `x` [1, 2, 4, 3], `w` [2, 3, 9]: the kernel exceeds the padded input of Conv2dSpec { in_channels: 3, out_channels: 2, kernel: [3, 3], stride: 1, padding: [0, 0, 0, 0] } (`x` is f32, `w` is f32)"
        ],
    );
    let y = cx.conv2d(&zeros(&cx, &[1, 2, 4, 3]), &spec, Some([4, 8]), w, None).unwrap();
    assert_eq!(y.shape(), [1, 2, 6, 2]);
}

#[test]
fn an_embedding_index_beyond_the_table_is_refused() {
    let cx = compute(ByteCount::MAX);
    let form = WeightForm::Table { rows: 4, columns: 8 };
    let storage = buffer(&cx, form);
    let table = Weight::new(&storage, 0, form, DType::F32);
    check(
        cx.gather(table, &[3, 4]),
        expect!["`gather` can't take `table` [4, 8], `row_idxs` [2]: index 4 is beyond the table's 4 rows"],
    );
}

#[test]
fn an_output_over_budget_is_an_ordinary_error_and_books_nothing() {
    let cx = compute(ByteCount(4096));
    let x = zeros(&cx, &[512]);
    let used = cx.device().ledger().used();
    check(
        cx.combine(&[(1.0, &x), (2.0, &x), (3.0, &x)]).and_then(|y| cx.concat(&[&x, &y])),
        expect![
            "`activations` needs 4.00 KiB more, but only 0 B of the budget of 4.00 KiB is available; raise the budget or ask for less"
        ],
    );
    assert_eq!(cx.device().ledger().used(), used);
}

#[test]
fn an_op_by_value_works_in_place_unless_somebody_shares_the_memory() {
    let cx = compute(ByteCount::MAX);
    let x = cx.upload(&[1.0, -2.0], &[2], DType::F32).unwrap();
    let before = cx.device().ledger().peak();
    let doubled = cx.activate(x, Activation::Affine { scale: 2.0, shift: 0.0 }).unwrap();
    assert_eq!(cx.device().ledger().peak(), before, "nobody shares it");

    let shared = doubled.clone();
    let shifted = cx.activate(doubled, Activation::Affine { scale: 1.0, shift: 1.0 }).unwrap();
    assert_eq!(cx.download(&shifted).unwrap(), [3.0, -3.0]);
    assert_eq!(cx.download(&shared).unwrap(), [2.0, -4.0], "a sharer keeps its numbers");
}

#[test]
fn rows_share_memory_and_change_apart_from_the_whole() {
    let cx = compute(ByteCount::MAX);
    let x = cx.upload(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2], DType::F32).unwrap();
    let used = cx.device().ledger().used();
    let middle = x.rows(1, 1).unwrap();
    assert_eq!(cx.device().ledger().used(), used);
    let negated = cx.activate(middle, Activation::Affine { scale: -1.0, shift: 0.0 }).unwrap();
    assert_eq!(cx.download(&negated).unwrap(), [-3.0, -4.0]);
    assert_eq!(cx.download(&x).unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(cx.download(&x.rows(1, 2).unwrap()).unwrap(), [3.0, 4.0, 5.0, 6.0]);
}
