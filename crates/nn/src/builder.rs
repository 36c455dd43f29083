//! From the tensors of a checkpoint to layers and units.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use plimsoll_device::{DType, Device, HostBytes, Upload, UploadPiece, WeightForm};
use plimsoll_residency::{Unit, UnitId};
use plimsoll_tensor::Conv2dSpec;
use plimsoll_weights::{TensorIndex, WeightError, printable};

use crate::BlankBytes;
use crate::layers::{Conv2d, Embedding, GroupNorm, LayerNorm, Linear, PRelu, Param};

/// Builds layers out of the tensors under one path. [`sub`](Self::sub) goes down the path; its segments are the
/// tensors' names in the checkpoint.
#[derive(Clone)]
pub struct Builder<'a> {
    /// None for a model without a checkpoint.
    index: Option<&'a TensorIndex>,
    device: &'a dyn Device,
    dtype: DType,
    path: String,
    state: Rc<RefCell<State>>,
}

#[derive(Default)]
struct State {
    units: Vec<Unit>,
    /// The tensors that layers took, with the shapes they have there.
    used: BTreeMap<String, Vec<usize>>,
}

/// The checkpoint is not of the model that its configuration describes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// A tensor is missing, has another shape, or is stored in a format that can't be used as a weight.
    #[error(transparent)]
    Weight(#[from] WeightError),
    /// Tensors that no layer uses. The configuration describes another model than the file holds: fetch both again.
    #[error(
        "`{origin}` has tensors that its configuration has no place for, {} in all, such as `{}`; its weights do not \
         belong to its configuration",
        names.len(), names[0]
    )]
    Unused {
        /// The file or folder.
        origin: String,
        /// The tensors, fit to print, in name order; at least one.
        names: Vec<String>,
    },
}

impl<'a> Builder<'a> {
    /// Builds from `index` for `device`, with matrices and tables in `dtype`.
    pub fn new(index: &'a TensorIndex, device: &'a dyn Device, dtype: DType) -> Self {
        Self { index: Some(index), device, dtype, path: String::new(), state: Rc::default() }
    }

    /// Builds without a checkpoint: every tensor asked for is there, in the shape asked for, and holds zeros stored in
    /// `dtype`. For what depends on sizes alone.
    pub fn blank(device: &'a dyn Device, dtype: DType) -> Self {
        Self { index: None, device, dtype, path: String::new(), state: Rc::default() }
    }

    /// The builder for the tensors below `segment`.
    pub fn sub(&self, segment: impl std::fmt::Display) -> Self {
        let path = if self.path.is_empty() { segment.to_string() } else { format!("{}.{segment}", self.path) };
        Self { path, ..self.clone() }
    }

    /// Whether the checkpoint has the tensor `name` below this path.
    pub fn has(&self, name: &str) -> bool {
        self.index.is_none_or(|index| index.get(&self.sub(name).path).is_some())
    }

    /// A linear layer: `weight` `[out, depth]`, `bias` `[out]` if there is to be one.
    ///
    /// # Errors
    /// [`BuildError::Weight`] if a tensor is missing or has another shape.
    pub fn linear(&self, name: &str, depth: usize, out: usize, bias: bool) -> Result<Linear, BuildError> {
        self.matrix(name, &[out, depth], bias)
    }

    /// A linear layer whose weight is stored as a 1x1 convolution, `[out, depth, 1, 1]`.
    ///
    /// # Errors
    /// [`BuildError::Weight`] if a tensor is missing or has another shape.
    pub fn linear_as_conv(&self, name: &str, depth: usize, out: usize, bias: bool) -> Result<Linear, BuildError> {
        self.matrix(name, &[out, depth, 1, 1], bias)
    }

    /// A convolution with bias: `weight` `[out, in, height, width]`, `bias` `[out]`.
    ///
    /// # Errors
    /// [`BuildError::Weight`] if a tensor is missing or has another shape.
    pub fn conv2d(&self, name: &str, spec: Conv2dSpec) -> Result<Conv2d, BuildError> {
        let [height, width] = spec.kernel;
        let linear = self.matrix(name, &[spec.out_channels, spec.in_channels, height, width], true)?;
        Ok(Conv2d::new(linear, spec))
    }

    /// Group normalization: `weight` and `bias` `[channels]`.
    ///
    /// # Errors
    /// [`BuildError::Weight`] if a tensor is missing or has another shape.
    pub fn group_norm(
        &self,
        name: &str,
        channels: usize,
        groups: usize,
        epsilon: f32,
    ) -> Result<GroupNorm, BuildError> {
        let (unit, [scale, shift]) = self.vectors(name, ["weight", "bias"], channels)?;
        Ok(GroupNorm { unit, scale, shift, groups, epsilon })
    }

    /// Layer normalization: `weight` and `bias` `[width]`.
    ///
    /// # Errors
    /// [`BuildError::Weight`] if a tensor is missing or has another shape.
    pub fn layer_norm(&self, name: &str, width: usize, epsilon: f32) -> Result<LayerNorm, BuildError> {
        let (unit, [scale, shift]) = self.vectors(name, ["weight", "bias"], width)?;
        Ok(LayerNorm { unit, scale, shift, epsilon })
    }

    /// PReLU with a slope for each channel: `weight` `[channels]`.
    ///
    /// # Errors
    /// [`BuildError::Weight`] if the tensor is missing or has another shape.
    pub fn prelu(&self, name: &str, channels: usize) -> Result<PRelu, BuildError> {
        let (unit, [slope]) = self.vectors(name, ["weight"], channels)?;
        Ok(PRelu { unit, slope })
    }

    /// An embedding table: `weight` `[rows, columns]`.
    ///
    /// # Errors
    /// [`BuildError::Weight`] if the tensor is missing or has another shape.
    pub fn embedding(&self, name: &str, rows: usize, columns: usize) -> Result<Embedding, BuildError> {
        let sub = self.sub(name);
        let piece = sub.piece("weight", &[rows, columns], WeightForm::Table { rows, columns })?;
        let (unit, params) = sub.add_unit(vec![piece]);
        Ok(Embedding { unit, table: params[0] })
    }

    /// The tensors that layers built from this builder and its relatives have taken so far, by name, with their shapes as
    /// the checkpoint has them: of a [`blank`](Self::blank) model, the checkpoint it would need.
    pub fn tensors(&self) -> BTreeMap<String, Vec<usize>> {
        self.state.borrow().used.clone()
    }

    /// The units of all layers built from this builder and its relatives, in the order in which they were built: the
    /// visiting order.
    ///
    /// # Errors
    /// [`BuildError::Unused`] if the checkpoint has tensors that no layer took, except those that `ignored` knows.
    pub fn finish(&self, ignored: impl Fn(&str) -> bool) -> Result<Vec<Unit>, BuildError> {
        let state = self.state.take();
        let Some(index) = self.index else { return Ok(state.units) };
        let unused = |name: &&str| !state.used.contains_key(*name) && !ignored(name);
        let stored = index.iter().map(|tensor| tensor.name.as_str());
        let names: Vec<String> = stored.filter(unused).map(printable).collect();
        if names.is_empty() {
            return Ok(state.units);
        }
        Err(BuildError::Unused { origin: index.origin().to_owned(), names })
    }

    fn matrix(&self, name: &str, shape: &[usize], bias: bool) -> Result<Linear, BuildError> {
        let sub = self.sub(name);
        let (out, depth, taps) = (shape[0], shape[1], shape[2..].iter().product());
        let mut pieces = vec![sub.piece("weight", shape, WeightForm::Matrix { out, depth, taps })?];
        if bias {
            pieces.push(sub.piece("bias", &[out], WeightForm::Vector { len: out })?);
        }
        let (unit, params) = sub.add_unit(pieces);
        Ok(Linear { unit, weight: params[0], bias: params.get(1).copied() })
    }

    fn vectors<const N: usize>(
        &self,
        name: &str,
        tensors: [&str; N],
        len: usize,
    ) -> Result<(UnitId, [Param; N]), BuildError> {
        let sub = self.sub(name);
        let pieces = tensors.iter().map(|tensor| sub.piece(tensor, &[len], WeightForm::Vector { len }));
        let (unit, params) = sub.add_unit(pieces.collect::<Result<_, _>>()?);
        Ok((unit, params.try_into().expect("there is a parameter for each piece")))
    }

    /// The upload of one tensor, if the checkpoint has it in that shape.
    fn piece(&self, tensor: &str, shape: &[usize], form: WeightForm) -> Result<UploadPiece, BuildError> {
        let name = self.sub(tensor).path;
        let (source, source_dtype): (Arc<dyn HostBytes>, DType) = match self.index {
            Some(index) => {
                let (stored, stored_dtype) = index.weight(&name, shape)?;
                (stored.bytes.clone(), stored_dtype)
            }
            None => (Arc::new(BlankBytes::new(form.element_count() * self.dtype.size())), self.dtype),
        };
        self.state.borrow_mut().used.insert(name, shape.to_vec());
        Ok(UploadPiece { source, source_dtype, form, dtype: self.dtype, offset: 0 })
    }

    fn add_unit(&self, pieces: Vec<UploadPiece>) -> (UnitId, Vec<Param>) {
        let unit = Unit::new(self.device, Upload { name: self.path.clone(), pieces });
        let params = unit.upload.pieces.iter().map(Param::of).collect();
        let mut state = self.state.borrow_mut();
        state.units.push(unit);
        (UnitId(state.units.len() - 1), params)
    }
}
