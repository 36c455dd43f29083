//! Single operations that torch computed: `fixtures/goldens/ops.safetensors` and `ops.json`.

use serde_json::Value;

use crate::golden::{Golden, GoldenTensor};
use crate::golden_json;

/// The goldens of all operations, made by `tools/reference/op_goldens.py` (torch 2.10.0) in f64 and rounded to f32 once.
pub struct OpGoldens {
    tensors: Golden,
    cases: Value,
}

/// One execution of one operation: its tensors, and what `ops.json` says beside them.
pub struct OpCase<'a> {
    name: &'a str,
    tensors: &'a Golden,
    parameters: &'a Value,
}

impl OpGoldens {
    /// Opens the two files.
    ///
    /// # Panics
    /// If one isn't there or can't be read.
    #[track_caller]
    pub fn load() -> Self {
        Self { tensors: Golden::load("ops"), cases: golden_json("ops")["cases"].take() }
    }

    /// The cases of the operation `op`, in name order; at least one.
    ///
    /// # Panics
    /// If there is none.
    #[track_caller]
    pub fn cases(&self, op: &str) -> Vec<OpCase<'_>> {
        let all = self.cases.as_object().expect("the cases are an object");
        let of_op = all.iter().filter(|(name, _)| name.split('.').next() == Some(op));
        let cases: Vec<_> =
            of_op.map(|(name, parameters)| OpCase { name, tensors: &self.tensors, parameters }).collect();
        assert!(!cases.is_empty(), "no golden of `{op}`");
        cases
    }
}

impl OpCase<'_> {
    /// `OP.CASE`.
    pub fn name(&self) -> &str {
        self.name
    }

    /// An input, or the result `out`, in torch's layout.
    ///
    /// # Panics
    /// If there is none of that name.
    #[track_caller]
    pub fn tensor(&self, name: &str) -> GoldenTensor<f32> {
        self.tensors.f32(&format!("{}.{name}", self.name))
    }

    /// The same, if the case has it.
    pub fn optional_tensor(&self, name: &str) -> Option<GoldenTensor<f32>> {
        self.tensors.has(&format!("{}.{name}", self.name)).then(|| self.tensor(name))
    }

    /// What `ops.json` gives as `name`.
    ///
    /// # Panics
    /// If it gives nothing.
    #[track_caller]
    pub fn parameter(&self, name: &str) -> &Value {
        let parameter = &self.parameters[name];
        assert!(!parameter.is_null(), "`{}` has no parameter `{name}`", self.name);
        parameter
    }

    /// A parameter that is a number.
    ///
    /// # Panics
    /// If it isn't.
    #[track_caller]
    pub fn number(&self, name: &str) -> f64 {
        self.parameter(name).as_f64().unwrap_or_else(|| panic!("`{name}` of `{}` is no number", self.name))
    }

    /// A parameter that counts something.
    ///
    /// # Panics
    /// If it doesn't.
    #[track_caller]
    pub fn size(&self, name: &str) -> usize {
        let size = self.parameter(name).as_u64().and_then(|size| usize::try_from(size).ok());
        size.unwrap_or_else(|| panic!("`{name}` of `{}` is no size", self.name))
    }
}
