//! What `--model` of `plan` names: a folder, or one of the built-in shapes.

use std::ffi::OsString;
use std::path::PathBuf;

use super::shape::Shape;

const SHAPE_PREFIX: &str = "shape:";

/// What is planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PlanModel {
    /// A shape that the program knows, without weights.
    Shape(Shape),
    /// A model folder.
    Folder(PathBuf),
}

/// There is no such shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no shape `{name}`; there are {}",
    Shape::ALL.map(|shape| format!("{SHAPE_PREFIX}{}", shape.name())).join(", ")
)]
pub(crate) struct UnknownShape {
    name: String,
}

impl PlanModel {
    /// `shape:NAME`, or else a folder's path.
    pub(crate) fn parse(text: OsString) -> Result<Self, UnknownShape> {
        let Some(name) = text.to_str().and_then(|text| text.strip_prefix(SHAPE_PREFIX)) else {
            return Ok(Self::Folder(text.into()));
        };
        let shape = Shape::ALL.into_iter().find(|shape| shape.name() == name);
        shape.map(Self::Shape).ok_or_else(|| UnknownShape { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_names_and_everything_else_is_a_folder() {
        for shape in Shape::ALL {
            let text = format!("{SHAPE_PREFIX}{}", shape.name());
            assert_eq!(PlanModel::parse(text.into()), Ok(PlanModel::Shape(shape)));
        }
        assert_eq!(PlanModel::parse("./shape:sd15".into()), Ok(PlanModel::Folder("./shape:sd15".into())));
        let error = PlanModel::parse("shape:sd9".into()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no shape `sd9`; there are shape:sd15, shape:sdxl, shape:flux, shape:wan14b"
        );
    }
}
