//! Safetensors files written by hand, right or wrong in every way.

/// Builds the bytes of a safetensors file. Nothing is checked: what isn't overridden is right, so that a test changes
/// just the one thing it is about.
#[derive(Clone, Debug, Default)]
pub struct CraftedFile {
    entries: Vec<String>,
    data: Vec<u8>,
    header: Option<Vec<u8>>,
    header_len: Option<u64>,
}

impl CraftedFile {
    /// A file without tensors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a tensor and its bytes, with the offsets that they get.
    #[must_use]
    pub fn tensor(mut self, name: &str, dtype: &str, shape: &[usize], bytes: &[u8]) -> Self {
        let begin = self.data.len();
        self.data.extend_from_slice(bytes);
        let end = self.data.len();
        self.entry(
            name,
            &format!(r#"{{"dtype":"{dtype}","shape":{},"data_offsets":[{begin},{end}]}}"#, serde_json::json!(shape)),
        )
    }

    /// Appends an entry to the header: `value` is JSON as it stands, the name is escaped.
    #[must_use]
    pub fn entry(mut self, name: &str, value: &str) -> Self {
        self.entries.push(format!("{}:{value}", serde_json::json!(name)));
        self
    }

    /// Appends bytes to the data, without an entry.
    #[must_use]
    pub fn data(mut self, bytes: &[u8]) -> Self {
        self.data.extend_from_slice(bytes);
        self
    }

    /// Takes the place of all entries: the header's bytes as they stand.
    #[must_use]
    pub fn header(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.header = Some(bytes.into());
        self
    }

    /// Claims another length of the header than it has.
    #[must_use]
    pub fn header_len(mut self, len: u64) -> Self {
        self.header_len = Some(len);
        self
    }

    /// The whole file.
    pub fn bytes(&self) -> Vec<u8> {
        let header = self.header.clone().unwrap_or_else(|| format!("{{{}}}", self.entries.join(",")).into_bytes());
        let header_len = self.header_len.unwrap_or(header.len() as u64);
        [&header_len.to_le_bytes(), header.as_slice(), &self.data].concat()
    }

    /// The file without its last `count` bytes.
    pub fn bytes_cut_by(&self, count: usize) -> Vec<u8> {
        let mut bytes = self.bytes();
        bytes.truncate(bytes.len() - count);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_what_it_is_told() {
        let bytes = CraftedFile::new().tensor("a\n", "U8", &[2], &[7, 8]).bytes();
        let header = br#"{"a\n":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}"#;
        assert_eq!(bytes, [&(header.len() as u64).to_le_bytes(), header.as_slice(), &[7, 8]].concat());
    }
}
