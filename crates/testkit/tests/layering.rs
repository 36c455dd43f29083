//! Dependencies point down only.

use std::collections::BTreeMap;
use std::path::Path;

/// The crates, the lowest first. A crate may depend on those before it.
const LAYERS: [&str; 11] =
    ["device", "cpu", "sim", "tensor", "weights", "residency", "nn", "models", "sampling", "pipeline", "plimsoll"];

/// For tests: stands beside the layers, and only test code may depend on it.
const BESIDE: &str = "testkit";

fn manifests() -> BTreeMap<String, toml::Table> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crates' folder");
    let folders = std::fs::read_dir(crates).expect("the crates' folder can be listed");
    folders
        .map(|folder| {
            let folder = folder.expect("the crates' folder can be listed").path();
            let text = std::fs::read_to_string(folder.join("Cargo.toml")).expect("a crate has a manifest");
            let name = folder.file_name().expect("a crate's folder has a name").to_string_lossy().into_owned();
            (name, text.parse().expect("the manifest is TOML"))
        })
        .collect()
}

/// The edges of a manifest's dependency table to crates of ours that are not below it.
fn upward_edges(name: &str, table: Option<&toml::Value>) -> Vec<String> {
    let layer = |name: &str| LAYERS.iter().position(|layer| *layer == name);
    let dependencies = table.and_then(toml::Value::as_table).into_iter().flat_map(|table| table.keys());
    let ours = dependencies.filter_map(|dependency| dependency.strip_prefix("plimsoll-"));
    ours.filter(|dependency| layer(dependency).is_none_or(|layer_idx| layer_idx >= layer(name).unwrap_or(0)))
        .map(|dependency| format!("{name} -> {dependency}"))
        .collect()
}

/// The upward edges of a manifest, those for one target only among them.
fn upward_edges_of(name: &str, manifest: &toml::Table) -> Vec<String> {
    let for_targets = manifest.get("target").and_then(toml::Value::as_table).into_iter();
    let for_targets = for_targets.flat_map(|targets| targets.values().filter_map(toml::Value::as_table));
    let tables = std::iter::once(manifest).chain(for_targets);
    tables
        .flat_map(|table| ["dependencies", "build-dependencies"].map(|kind| upward_edges(name, table.get(kind))))
        .flatten()
        .collect()
}

#[test]
fn no_crate_depends_on_one_above_it() {
    let manifests = manifests();
    let edges: Vec<String> = LAYERS.iter().flat_map(|name| upward_edges_of(name, &manifests[*name])).collect();
    assert!(edges.is_empty(), "these dependencies point up: {edges:?}");
}

#[test]
fn every_crate_has_its_layer() {
    let unknown: Vec<_> =
        manifests().into_keys().filter(|name| !LAYERS.contains(&name.as_str()) && name != BESIDE).collect();
    assert!(unknown.is_empty(), "these crates have no place in the layers: {unknown:?}");
}

#[test]
fn an_upward_edge_is_found() {
    let manifest = "[dependencies]\nplimsoll-nn = '1'\nplimsoll-device = '1'\nplimsoll-testkit = '1'\nserde = '1'\n\
                    [target.'cfg(unix)'.dependencies]\nplimsoll-models = '1'\n\
                    [dev-dependencies]\nplimsoll-pipeline = '1'";
    assert_eq!(
        upward_edges_of("residency", &manifest.parse().unwrap()),
        ["residency -> nn", "residency -> testkit", "residency -> models"]
    );
}
