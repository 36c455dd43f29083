//! Why components could not be loaded, shrunk or unloaded.

use plimsoll_device::{AllocError, ByteCount, DeviceError};

use crate::component::ChangeError;
use crate::share::Shortfall;

/// Components can't be loaded, changed or unloaded.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LoadError {
    /// Not even the smallest plans fit. Raise the budget by `needed - budget`, use smaller sizes, or fewer offload
    /// streams.
    #[error(
        "{} needs at least {needed}, {activation_bytes} of it for activations, but the budget is {budget}: {} short",
        quoted(components), needed.saturating_sub(*budget)
    )]
    DoesNotFit {
        /// The components.
        components: Vec<String>,
        /// The least budget with which it would fit.
        needed: ByteCount,
        /// The budget.
        budget: ByteCount,
        /// What of it is for activations.
        activation_bytes: ByteCount,
    },
    /// Somebody uses what would have to be changed or freed. Wait for the holders, or end them.
    #[error("`{component}` can't be changed: {} it; let that end first", held_by(holders))]
    Held {
        /// The component.
        component: String,
        /// Who uses it.
        holders: Vec<String>,
    },
    /// The memory that the plan counts on is not there: somebody else took it meanwhile.
    #[error("loading `{component}` failed: {source}")]
    Alloc {
        /// The component.
        component: String,
        /// Which account is short of what.
        source: AllocError,
    },
    /// A copy failed. If the storage was at fault, loading can be repeated.
    #[error("loading `{component}` failed: {source}")]
    Device {
        /// The component.
        component: String,
        /// What failed.
        source: DeviceError,
    },
}

impl LoadError {
    pub(crate) fn of(component: &str, error: ChangeError, holders: Vec<String>) -> Self {
        let component = component.to_owned();
        match error {
            ChangeError::Leased => Self::Held { component, holders },
            ChangeError::Device(DeviceError::Alloc(source)) => Self::Alloc { component, source },
            ChangeError::Device(source) => Self::Device { component, source },
        }
    }
}

impl Shortfall {
    pub(crate) fn of(self, components: &[String], activation_bytes: ByteCount) -> LoadError {
        let Self { needed, budget } = self;
        LoadError::DoesNotFit { components: components.to_vec(), needed, budget, activation_bytes }
    }
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn held_by(holders: &[String]) -> String {
    match holders {
        [] => "somebody holds".to_owned(),
        [one] => format!("{one} holds"),
        several => format!("{} hold", several.join(", ")),
    }
}
