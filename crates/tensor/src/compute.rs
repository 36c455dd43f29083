//! Where ops run.

use std::sync::Arc;

use plimsoll_device::{Account, ByteCount, DType, Device, Kernels, OPERAND_LEN_LIMIT, Output, Queue};

use crate::error::shape_error;
use crate::{OpError, Tensor};

/// Where ops run and on which account their outputs are booked. The ops are its methods.
#[derive(Clone)]
pub struct Compute {
    device: Arc<dyn Device>,
    queue: Arc<dyn Queue>,
    account: Account,
}

impl Compute {
    /// Ops on the device's compute queue, with outputs booked on the account of that name.
    pub fn new(device: Arc<dyn Device>, account: &str) -> Self {
        let queue = device.compute_queue();
        let account = device.ledger().account(account);
        Self { device, queue, account }
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The compute queue.
    pub fn queue(&self) -> &Arc<dyn Queue> {
        &self.queue
    }

    /// A device value from host numbers, converted to `dtype` (round to nearest even).
    ///
    /// # Errors
    /// [`OpError::Shape`] if `shape` has another element count or none; [`OpError::Device`] over budget.
    pub fn upload(&self, numbers: &[f32], shape: &[usize], dtype: DType) -> Result<Tensor, OpError> {
        if shape.iter().product::<usize>() != numbers.len() {
            let given = [numbers.len()];
            return Err(shape_error("upload", &[("numbers", &given), ("shape", shape)], "counts must be equal"));
        }
        let f32s = self.produce("upload", shape, DType::F32, |_, output| {
            self.queue.write(bytemuck::cast_slice(numbers), output.buffer)?;
            Ok(())
        })?;
        if dtype == DType::F32 { Ok(f32s) } else { self.convert(&f32s, dtype) }
    }

    /// The numbers on the host. Waits for everything enqueued before.
    ///
    /// # Errors
    /// [`OpError::Device`] if something enqueued before failed.
    pub fn download(&self, x: &Tensor) -> Result<Vec<f32>, OpError> {
        if x.dtype() != DType::F32 {
            return self.download(&self.convert(x, DType::F32)?);
        }
        let mut numbers = vec![0.0f32; x.element_count()];
        self.queue.read(x.buffer(), x.offset(), bytemuck::cast_slice_mut(&mut numbers))?;
        Ok(numbers)
    }

    pub(crate) fn kernels(&self) -> &dyn Kernels {
        self.device.kernels()
    }

    /// Allocates an output and has a kernel fill it.
    pub(crate) fn produce(
        &self,
        op: &'static str,
        shape: &[usize],
        dtype: DType,
        fill: impl FnOnce(&dyn Kernels, Output<'_>) -> Result<(), OpError>,
    ) -> Result<Tensor, OpError> {
        let len = shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
        let Some(len) = len.filter(|len| (1..OPERAND_LEN_LIMIT).contains(len)) else {
            let rule = format!("a tensor must have from 1 to {} numbers; use smaller sizes", OPERAND_LEN_LIMIT - 1);
            return Err(shape_error(op, &[("output", shape)], rule));
        };
        let bytes = len * dtype.size();
        let mut buffer = self.device.allocate(&*self.queue, self.account, ByteCount::of(bytes))?;
        fill(self.kernels(), Output { buffer: &mut buffer, dtype })?;
        Ok(Tensor::from_buffer(buffer, shape.to_vec(), dtype))
    }

    /// Has a kernel change `x` in place, or a copy of it if somebody else shares its memory.
    pub(crate) fn change(
        &self,
        x: Tensor,
        edit: impl FnOnce(&dyn Kernels, Output<'_>) -> Result<(), OpError>,
    ) -> Result<Tensor, OpError> {
        let dtype = x.dtype();
        let mut x = x;
        if x.exclusive().is_none() {
            x = self.convert(&x, dtype)?;
        }
        let buffer = x.exclusive().expect("a value just made is not shared");
        edit(self.kernels(), Output { buffer, dtype })?;
        Ok(x)
    }
}
