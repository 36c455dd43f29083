//! The operations of the device traits: each takes its time and says what it reads and writes. Nothing is computed.
//!
//! Time is floating-point operations over the device's rate, or bytes over its memory's rate if that is given and takes
//! longer.

use plimsoll_device::{
    Activation, AttentionShape, ByteCount, ConvShape, DType, DeviceError, GroupNormShape, Kernels, MatmulShape,
    Operand, Output, Queue, ResizeShape,
};

use crate::device::SimDevice;
use crate::trace::WorkKind;
use crate::world::{Area, Work};

impl SimDevice {
    /// Enqueues a kernel that reads `reads` and then writes `y`.
    fn run(
        &self,
        queue: &dyn Queue,
        name: &str,
        flops: f64,
        reads: &[Area<'_>],
        y: Area<'_>,
    ) -> Result<(), DeviceError> {
        let options = self.options();
        let bytes: f64 = reads.iter().chain([&y]).map(|area| (area.end - area.start) as f64).sum();
        let memory_seconds = options.memory_bytes_per_second.map_or(0.0, |rate| bytes / rate);
        let seconds = (flops / options.flops_per_second).max(memory_seconds);
        let (kind, bytes) = (WorkKind::Compute, ByteCount::ZERO);
        let work = Work { kind, name, bytes, seconds, reads, writes: &[y], output: None };
        self.enqueue(queue, &work).map(drop)
    }

    /// The first `len` numbers of an operand.
    fn read<'a>(&self, x: Operand<'a>, len: usize) -> Area<'a> {
        let start = x.offset as u64;
        self.area(x.buffer, start..start + bytes(len, x.dtype))
    }

    /// The first `len` numbers of an output.
    fn write<'a>(&self, y: &'a Output<'_>, len: usize) -> Area<'a> {
        self.area(y.buffer, 0..bytes(len, y.dtype))
    }
}

fn bytes(len: usize, dtype: DType) -> u64 {
    len as u64 * dtype.size() as u64
}

fn image_len(shape: &ResizeShape, size: [usize; 2]) -> usize {
    shape.batch * size[0] * size[1] * shape.channels
}

impl Kernels for SimDevice {
    fn matmul(
        &self,
        queue: &dyn Queue,
        shape: &MatmulShape,
        x: Operand<'_>,
        w: Operand<'_>,
        bias: Option<Operand<'_>>,
        y: Output<'_>,
    ) -> Result<(), DeviceError> {
        let mut reads = vec![self.read(x, shape.rows * shape.depth), self.read(w, shape.depth * shape.out)];
        reads.extend(bias.map(|bias| self.read(bias, shape.out)));
        self.run(queue, "matmul", shape.flops(), &reads, self.write(&y, shape.rows * shape.out))
    }

    fn conv2d(
        &self,
        queue: &dyn Queue,
        shape: &ConvShape,
        x: Operand<'_>,
        w: Operand<'_>,
        bias: Option<Operand<'_>>,
        y: Output<'_>,
    ) -> Result<(), DeviceError> {
        let pixels = |size: [usize; 2]| shape.batch * size[0] * size[1];
        let taps = shape.kernel[0] * shape.kernel[1];
        let mut reads = vec![
            self.read(x, pixels(shape.input) * shape.in_channels),
            self.read(w, taps * shape.in_channels * shape.out_channels),
        ];
        reads.extend(bias.map(|bias| self.read(bias, shape.out_channels)));
        let output = shape.output().expect("the tensor layer checked that the kernel fits the input");
        self.run(queue, "conv2d", shape.flops(), &reads, self.write(&y, pixels(output) * shape.out_channels))
    }

    fn attention(
        &self,
        queue: &dyn Queue,
        shape: &AttentionShape,
        q: Operand<'_>,
        k: Operand<'_>,
        v: Operand<'_>,
        y: Output<'_>,
    ) -> Result<(), DeviceError> {
        let width = shape.heads * shape.head_dim;
        let (q_len, kv_len) = (shape.batch * shape.q_len * width, shape.batch * shape.kv_len * width);
        let reads = [self.read(q, q_len), self.read(k, kv_len), self.read(v, kv_len)];
        self.run(queue, "attention", shape.flops(), &reads, self.write(&y, q_len))
    }

    fn group_norm(
        &self,
        queue: &dyn Queue,
        shape: &GroupNormShape,
        x: Operand<'_>,
        scale: Operand<'_>,
        shift: Operand<'_>,
        y: Output<'_>,
    ) -> Result<(), DeviceError> {
        let len = shape.batch * shape.pixels * shape.channels;
        let reads = [self.read(x, len), self.read(scale, shape.channels), self.read(shift, shape.channels)];
        self.run(queue, "group_norm", 0.0, &reads, self.write(&y, len))
    }

    fn layer_norm(
        &self,
        queue: &dyn Queue,
        rows: usize,
        columns: usize,
        _epsilon: f32,
        x: Operand<'_>,
        scale: Operand<'_>,
        shift: Operand<'_>,
        y: Output<'_>,
    ) -> Result<(), DeviceError> {
        let reads = [self.read(x, rows * columns), self.read(scale, columns), self.read(shift, columns)];
        self.run(queue, "layer_norm", 0.0, &reads, self.write(&y, rows * columns))
    }

    fn activate(
        &self,
        queue: &dyn Queue,
        _activation: Activation,
        len: usize,
        y: Output<'_>,
    ) -> Result<(), DeviceError> {
        let y = self.write(&y, len);
        self.run(queue, "activate", 0.0, &[y], y)
    }

    fn add(&self, queue: &dyn Queue, len: usize, x: Operand<'_>, y: Output<'_>) -> Result<(), DeviceError> {
        let y = self.write(&y, len);
        self.run(queue, "add", 0.0, &[self.read(x, len), y], y)
    }

    fn add_per_batch(
        &self,
        queue: &dyn Queue,
        batch: usize,
        rows: usize,
        columns: usize,
        x: Operand<'_>,
        y: Output<'_>,
    ) -> Result<(), DeviceError> {
        let y = self.write(&y, batch * rows * columns);
        self.run(queue, "add_per_batch", 0.0, &[self.read(x, batch * columns), y], y)
    }

    fn combine(
        &self,
        queue: &dyn Queue,
        len: usize,
        terms: &[(f32, Operand<'_>)],
        y: Output<'_>,
    ) -> Result<(), DeviceError> {
        let reads: Vec<Area<'_>> = terms.iter().map(|(_, x)| self.read(*x, len)).collect();
        self.run(queue, "combine", 0.0, &reads, self.write(&y, len))
    }

    fn geglu(
        &self,
        queue: &dyn Queue,
        rows: usize,
        columns: usize,
        x: Operand<'_>,
        y: Output<'_>,
    ) -> Result<(), DeviceError> {
        self.run(queue, "geglu", 0.0, &[self.read(x, 2 * rows * columns)], self.write(&y, rows * columns))
    }

    fn prelu(
        &self,
        queue: &dyn Queue,
        rows: usize,
        columns: usize,
        slope: Operand<'_>,
        y: Output<'_>,
    ) -> Result<(), DeviceError> {
        let y = self.write(&y, rows * columns);
        self.run(queue, "prelu", 0.0, &[self.read(slope, columns), y], y)
    }

    fn resize_nearest(
        &self,
        queue: &dyn Queue,
        shape: &ResizeShape,
        x: Operand<'_>,
        y: Output<'_>,
    ) -> Result<(), DeviceError> {
        let x = self.read(x, image_len(shape, shape.input));
        self.run(queue, "resize_nearest", 0.0, &[x], self.write(&y, image_len(shape, shape.output)))
    }

    fn pixel_shuffle(
        &self,
        queue: &dyn Queue,
        shape: &ResizeShape,
        x: Operand<'_>,
        y: Output<'_>,
    ) -> Result<(), DeviceError> {
        // As many numbers on both sides.
        let len = image_len(shape, shape.output);
        self.run(queue, "pixel_shuffle", 0.0, &[self.read(x, len)], self.write(&y, len))
    }

    fn concat(
        &self,
        queue: &dyn Queue,
        rows: usize,
        parts: &[(usize, Operand<'_>)],
        y: Output<'_>,
    ) -> Result<(), DeviceError> {
        let columns: usize = parts.iter().map(|(columns, _)| columns).sum();
        let reads: Vec<Area<'_>> = parts.iter().map(|(columns, x)| self.read(*x, rows * columns)).collect();
        self.run(queue, "concat", 0.0, &reads, self.write(&y, rows * columns))
    }

    fn gather(
        &self,
        queue: &dyn Queue,
        columns: usize,
        row_idxs: &[u32],
        table: Operand<'_>,
        y: Output<'_>,
    ) -> Result<(), DeviceError> {
        let rows = row_idxs.iter().max().map_or(0, |&idx| idx as usize + 1);
        let reads = [self.read(table, rows * columns)];
        self.run(queue, "gather", 0.0, &reads, self.write(&y, row_idxs.len() * columns))
    }

    fn convert(&self, queue: &dyn Queue, len: usize, x: Operand<'_>, y: Output<'_>) -> Result<(), DeviceError> {
        self.run(queue, "convert", 0.0, &[self.read(x, len)], self.write(&y, len))
    }
}
