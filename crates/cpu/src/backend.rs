//! The operations of the device traits, run by the kernels of this crate.
//!
//! Each method recovers slices from buffers, allocates its kernel's scratch memory from the budget, and, unless this is
//! a rehearsal, runs the kernel on the pool.

use half::bf16;
use plimsoll_device::{
    Activation, AttentionShape, Buffer, ByteCount, ConvShape, DType, DeviceError, GroupNormShape, Kernels, MatmulShape,
    Operand, Output, Queue, ResizeShape,
};

use crate::device::CpuDevice;
use crate::numbers::{Numbers, NumbersMut};
use crate::storage::HostMemory;
use crate::{attention, conv, gemm, rows};

impl CpuDevice {
    /// Runs a kernel with `scratch_len` f32 of scratch memory, or, in a rehearsal, only books that memory and counts
    /// `flops`: those of matrix products, beside which the others are nothing.
    fn run(&self, flops: f64, scratch_len: usize, kernel: impl FnOnce(&mut [f32]) + Send) -> Result<(), DeviceError> {
        let mut scratch = self.scratch(scratch_len)?;
        self.shared.clock.rehearse(flops);
        if !self.shared.clock.is_rehearsing() {
            let scratch = scratch.as_mut().map_or(&mut [][..], |buffer| {
                &mut bytemuck::cast_slice_mut(buffer.storage_mut::<HostMemory>().bytes_mut())[..scratch_len]
            });
            self.shared.pool.install(|| kernel(scratch));
        }
        Ok(())
    }

    fn scratch(&self, len: usize) -> Result<Option<Buffer>, DeviceError> {
        if len == 0 {
            return Ok(None);
        }
        let account = self.shared.ledger.account("workspace");
        Ok(Some(self.shared.allocate(account, ByteCount::of(len * size_of::<f32>()))?))
    }
}

/// The first `len` numbers of an operand; none in a rehearsal.
fn read(x: Operand<'_>, len: usize) -> Numbers<'_> {
    let bytes = x.buffer.storage::<HostMemory>().bytes();
    let bytes = if bytes.is_empty() { bytes } else { &bytes[x.offset..][..len * x.dtype.size()] };
    match x.dtype {
        DType::F32 => Numbers::F32(bytemuck::cast_slice(bytes)),
        DType::BF16 => Numbers::Bf16(bytemuck::cast_slice(bytes)),
        DType::F16 => unreachable!("the device computes on f32 and bf16"),
    }
}

/// The first `len` numbers of an f32 vector; none in a rehearsal.
fn vector(x: Operand<'_>, len: usize) -> &[f32] {
    match read(x, len) {
        Numbers::F32(numbers) => numbers,
        Numbers::Bf16(_) => unreachable!("vectors are f32 on the device"),
    }
}

/// The first `len` numbers of an output; none in a rehearsal.
fn write(y: Output<'_>, len: usize) -> NumbersMut<'_> {
    let bytes = y.buffer.storage_mut::<HostMemory>().bytes_mut();
    let bytes = if bytes.is_empty() { bytes } else { &mut bytes[..len * y.dtype.size()] };
    match y.dtype {
        DType::F32 => NumbersMut::F32(bytemuck::cast_slice_mut(bytes)),
        DType::BF16 => NumbersMut::Bf16(bytemuck::cast_slice_mut::<u8, bf16>(bytes)),
        DType::F16 => unreachable!("the device computes on f32 and bf16"),
    }
}

impl Kernels for CpuDevice {
    fn matmul(
        &self,
        _queue: &dyn Queue,
        shape: &MatmulShape,
        x: Operand<'_>,
        w: Operand<'_>,
        bias: Option<Operand<'_>>,
        y: Output<'_>,
    ) -> Result<(), DeviceError> {
        let (isa, threads) = (self.shared.isa, self.thread_count());
        let packed_len = crate::pack::packed_len(isa, shape.out, shape.depth, 1);
        let (x, w) = (read(x, shape.rows * shape.depth), read(w, packed_len));
        let bias = bias.map(|bias| vector(bias, shape.out));
        let scratch_len = gemm::matmul_scratch_len(isa, threads, shape, y.dtype);
        let y = write(y, shape.rows * shape.out);
        self.run(shape.flops(), scratch_len, |scratch| gemm::matmul(isa, threads, shape, x, w, bias, y, scratch))
    }

    fn conv2d(
        &self,
        _queue: &dyn Queue,
        shape: &ConvShape,
        x: Operand<'_>,
        w: Operand<'_>,
        bias: Option<Operand<'_>>,
        y: Output<'_>,
    ) -> Result<(), DeviceError> {
        let (isa, threads) = (self.shared.isa, self.thread_count());
        let taps = shape.kernel[0] * shape.kernel[1];
        let packed_len = crate::pack::packed_len(isa, shape.out_channels, shape.in_channels, taps);
        let pixels = |size: [usize; 2]| shape.batch * size[0] * size[1];
        let x = read(x, pixels(shape.input) * shape.in_channels);
        let w = read(w, packed_len);
        let bias = bias.map(|bias| vector(bias, shape.out_channels));
        let output = shape.output().expect("the tensor layer checked that the kernel fits the input");
        let scratch_len = conv::conv2d_scratch_len(isa, threads, shape, y.dtype);
        let y = write(y, pixels(output) * shape.out_channels);
        self.run(shape.flops(), scratch_len, |scratch| conv::conv2d(isa, threads, shape, x, w, bias, y, scratch))
    }

    fn attention(
        &self,
        _queue: &dyn Queue,
        shape: &AttentionShape,
        q: Operand<'_>,
        k: Operand<'_>,
        v: Operand<'_>,
        y: Output<'_>,
    ) -> Result<(), DeviceError> {
        let (isa, threads) = (self.shared.isa, self.thread_count());
        let width = shape.heads * shape.head_dim;
        let (q_len, kv_len) = (shape.batch * shape.q_len * width, shape.batch * shape.kv_len * width);
        let (q, k, v) = (read(q, q_len), read(k, kv_len), read(v, kv_len));
        let scratch_len = attention::attention_scratch_len(isa, threads, shape);
        let y = write(y, q_len);
        self.run(shape.flops(), scratch_len, |scratch| attention::attention(isa, threads, shape, q, k, v, y, scratch))
    }

    fn group_norm(
        &self,
        _queue: &dyn Queue,
        shape: &GroupNormShape,
        x: Operand<'_>,
        scale: Operand<'_>,
        shift: Operand<'_>,
        y: Output<'_>,
    ) -> Result<(), DeviceError> {
        let isa = self.shared.isa;
        let len = shape.batch * shape.pixels * shape.channels;
        let (x, y) = (read(x, len), write(y, len));
        let (scale, shift) = (vector(scale, shape.channels), vector(shift, shape.channels));
        let scratch_len = rows::group_norm_scratch_len(shape);
        self.run(0.0, scratch_len, |scratch| rows::group_norm(isa, shape, x, scale, shift, y, scratch))
    }

    fn layer_norm(
        &self,
        _queue: &dyn Queue,
        rows: usize,
        columns: usize,
        epsilon: f32,
        x: Operand<'_>,
        scale: Operand<'_>,
        shift: Operand<'_>,
        y: Output<'_>,
    ) -> Result<(), DeviceError> {
        let isa = self.shared.isa;
        let (x, y) = (read(x, rows * columns), write(y, rows * columns));
        let (scale, shift) = (vector(scale, columns), vector(shift, columns));
        self.run(0.0, 0, |_| rows::layer_norm(isa, rows, columns, epsilon, x, scale, shift, y))
    }

    fn activate(
        &self,
        _queue: &dyn Queue,
        activation: Activation,
        len: usize,
        y: Output<'_>,
    ) -> Result<(), DeviceError> {
        let (isa, y) = (self.shared.isa, write(y, len));
        self.run(0.0, 0, |_| rows::activate(isa, activation, y))
    }

    fn add(&self, _queue: &dyn Queue, len: usize, x: Operand<'_>, y: Output<'_>) -> Result<(), DeviceError> {
        let (isa, x, y) = (self.shared.isa, read(x, len), write(y, len));
        self.run(0.0, 0, |_| rows::add(isa, x, y))
    }

    fn add_per_batch(
        &self,
        _queue: &dyn Queue,
        batch: usize,
        rows: usize,
        columns: usize,
        x: Operand<'_>,
        y: Output<'_>,
    ) -> Result<(), DeviceError> {
        let isa = self.shared.isa;
        let (x, y) = (read(x, batch * columns), write(y, batch * rows * columns));
        self.run(0.0, 0, |_| rows::add_per_batch(isa, batch, rows, columns, x, y))
    }

    fn combine(
        &self,
        _queue: &dyn Queue,
        len: usize,
        terms: &[(f32, Operand<'_>)],
        y: Output<'_>,
    ) -> Result<(), DeviceError> {
        let isa = self.shared.isa;
        let terms: Vec<(f32, Numbers<'_>)> = terms.iter().map(|(factor, x)| (*factor, read(*x, len))).collect();
        let y = write(y, len);
        self.run(0.0, 0, |_| rows::combine(isa, &terms, y))
    }

    fn geglu(
        &self,
        _queue: &dyn Queue,
        rows: usize,
        columns: usize,
        x: Operand<'_>,
        y: Output<'_>,
    ) -> Result<(), DeviceError> {
        let isa = self.shared.isa;
        let (x, y) = (read(x, 2 * rows * columns), write(y, rows * columns));
        self.run(0.0, 0, |_| rows::geglu(isa, rows, columns, x, y))
    }

    fn prelu(
        &self,
        _queue: &dyn Queue,
        rows: usize,
        columns: usize,
        slope: Operand<'_>,
        y: Output<'_>,
    ) -> Result<(), DeviceError> {
        let isa = self.shared.isa;
        let (slope, y) = (vector(slope, columns), write(y, rows * columns));
        self.run(0.0, 0, |_| rows::prelu(isa, rows, columns, slope, y))
    }

    fn resize_nearest(
        &self,
        _queue: &dyn Queue,
        shape: &ResizeShape,
        x: Operand<'_>,
        y: Output<'_>,
    ) -> Result<(), DeviceError> {
        let (x, y) = (read(x, image_len(shape, shape.input)), write(y, image_len(shape, shape.output)));
        self.run(0.0, 0, |_| rows::resize_nearest(shape, x, y))
    }

    fn pixel_shuffle(
        &self,
        _queue: &dyn Queue,
        shape: &ResizeShape,
        x: Operand<'_>,
        y: Output<'_>,
    ) -> Result<(), DeviceError> {
        let len = image_len(shape, shape.output);
        let (x, y) = (read(x, len), write(y, len));
        self.run(0.0, 0, |_| rows::pixel_shuffle(shape, x, y))
    }

    fn concat(
        &self,
        _queue: &dyn Queue,
        rows: usize,
        parts: &[(usize, Operand<'_>)],
        y: Output<'_>,
    ) -> Result<(), DeviceError> {
        let columns: usize = parts.iter().map(|(columns, _)| columns).sum();
        let parts: Vec<(usize, Numbers<'_>)> =
            parts.iter().map(|(columns, x)| (*columns, read(*x, rows * columns))).collect();
        let y = write(y, rows * columns);
        self.run(0.0, 0, |_| rows::concat(rows, &parts, y))
    }

    fn gather(
        &self,
        _queue: &dyn Queue,
        columns: usize,
        row_idxs: &[u32],
        table: Operand<'_>,
        y: Output<'_>,
    ) -> Result<(), DeviceError> {
        let rows = row_idxs.iter().max().map_or(0, |&idx| idx as usize + 1);
        let (table, y) = (read(table, rows * columns), write(y, row_idxs.len() * columns));
        self.run(0.0, 0, |_| rows::gather(columns, row_idxs, table, y))
    }

    fn convert(&self, _queue: &dyn Queue, len: usize, x: Operand<'_>, y: Output<'_>) -> Result<(), DeviceError> {
        let (isa, x, y) = (self.shared.isa, read(x, len), write(y, len));
        self.run(0.0, 0, |_| rows::convert(isa, x, y))
    }
}

fn image_len(shape: &ResizeShape, size: [usize; 2]) -> usize {
    shape.batch * size[0] * size[1] * shape.channels
}
