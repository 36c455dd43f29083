//! CLIP's tokenizer: text to exactly as many ids as the text encoder has positions.
//!
//! Reads the files of a diffusers `tokenizer/` folder and gives what transformers' `CLIPTokenizer` (version 5) gives with
//! `padding="max_length", truncation=True`. Like it, the folder decides on the vocabulary, the merges and the special
//! tokens only; how text is normalized and split is CLIP's, whatever a `tokenizer.json` says about it.
//!
//! What always holds: every id is below the text encoder's vocabulary size, which is checked while loading.

use std::collections::BTreeMap;

use plimsoll_device::ByteCount;
use serde_json::{Map, Value};
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::replace::ReplacePattern;
use tokenizers::normalizers::{Lowercase, NFC, Replace, Sequence as Normalizers};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence as PreTokenizers;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{
    AddedToken, DecoderWrapper, NormalizerWrapper, PostProcessorWrapper, SplitDelimiterBehavior, TokenizerImpl,
};

/// Where CLIP divides text into words, numbers and runs of punctuation.
// Reference: openai/CLIP, clip/simple_tokenizer.py, class SimpleTokenizer
const WORD_PATTERN: &str =
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+";
const WORD_END: &str = "</w>";

const BACKEND_FILE: &str = "tokenizer.json";
const VOCAB_FILE: &str = "vocab.json";
const MERGES_FILE: &str = "merges.txt";
const CONFIG_FILE: &str = "tokenizer_config.json";
const SPECIAL_FILE: &str = "special_tokens_map.json";
const ADDED_FILE: &str = "added_tokens.json";

/// A CLIP tokenizer.
pub struct Tokenizer {
    backend: Backend,
    begin_id: u32,
    end_id: u32,
    pad_id: u32,
    length: usize,
}

type Backend = TokenizerImpl<BPE, Normalizers, PreTokenizers, PostProcessorWrapper, DecoderWrapper>;

/// What the text encoder can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextLimits {
    /// Rows of its token embedding: every id is smaller.
    pub vocab_size: usize,
    /// Rows of its position embedding: no sequence is longer.
    pub positions: usize,
}

/// A tokenizer can't be made of the files. None of these goes away by trying again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenizerError {
    /// The files that hold the vocabulary are not there. Complete the folder.
    #[error(
        "`{origin}` has no `{missing}`; a tokenizer folder needs `vocab.json` and `merges.txt`, or `tokenizer.json`"
    )]
    MissingFile {
        /// The folder.
        origin: String,
        /// The file.
        missing: &'static str,
    },
    /// A file is larger than any CLIP tokenizer's. It is damaged or another kind of file.
    #[error("`{file}` has {size}, more than the {limit} that a tokenizer file may have; fetch it again")]
    TooLarge {
        /// The file.
        file: String,
        /// Its size.
        size: ByteCount,
        /// The most that is accepted.
        limit: ByteCount,
    },
    /// A file does not hold what its name promises. Fetch it again.
    #[error("`{file}` is not usable: {reason}; fetch it again")]
    Malformed {
        /// The file.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// Tokenizer and text encoder do not belong together. Use the tokenizer that came with the model.
    #[error(
        "`{file}` gives `{token}` the id {id}, but the text encoder knows {vocab_size} tokens; use its own tokenizer"
    )]
    IdBeyondVocabulary {
        /// The file.
        file: String,
        /// The token.
        token: String,
        /// Its id.
        id: u64,
        /// Rows of the text encoder's token embedding.
        vocab_size: usize,
    },
    /// Two tokens would become one to the text encoder. Use the vocabulary that came with the model.
    #[error("`{file}` gives the id {id} to both `{first}` and `{second}`; use the vocabulary that came with the model")]
    SharedId {
        /// The file.
        file: String,
        /// A token.
        first: String,
        /// Another token.
        second: String,
        /// The id of both.
        id: u32,
    },
    /// A special token has no id. Use the vocabulary that came with the model.
    #[error("`{file}` has no token `{token}`, which is the {role} token; use the vocabulary that came with the model")]
    MissingSpecialToken {
        /// The file with the vocabulary.
        file: String,
        /// The token.
        token: String,
        /// What it is for: `begin`, `end`, `pad` or `unknown`.
        role: &'static str,
    },
    /// The ids would not fit the text encoder's positions. Use the tokenizer that came with the model.
    #[error("`{file}` asks for {length} ids, but the text encoder takes 2 to {positions}; correct `model_max_length`")]
    Length {
        /// The file.
        file: String,
        /// `model_max_length`.
        length: String,
        /// The text encoder's positions.
        positions: usize,
    },
}

/// A text can't be encoded; only a fault of the tokenizer's rules can cause it. Please report the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tokenizer failed on the text: {reason}")]
pub struct EncodeError {
    reason: String,
}

impl Tokenizer {
    /// The files that [`new`](Self::new) looks for. A folder has some of them.
    pub const FILES: [&'static str; 6] = [BACKEND_FILE, VOCAB_FILE, MERGES_FILE, CONFIG_FILE, SPECIAL_FILE, ADDED_FILE];

    /// The most that any of them may have. CLIP's own largest has 2.2 MB.
    pub const FILE_BYTES_MAX: ByteCount = ByteCount::mib(16);

    /// A tokenizer of the files (name in the folder, content) of the folder `origin`.
    ///
    /// # Errors
    /// [`TokenizerError`] when the files are incomplete, damaged, or do not fit the text encoder.
    pub fn new(origin: &str, files: &[(&str, &[u8])], limits: TextLimits) -> Result<Self, TokenizerError> {
        let folder = Folder { origin, files };
        let config = folder.object(CONFIG_FILE)?.unwrap_or_default();
        let vocabulary = Vocabulary::read(&folder, limits)?;
        let tokens = SpecialTokens::read(&folder, &config, &vocabulary)?;
        let length = sequence_length(&folder, &config, limits)?;
        check_side(&folder, &config, "padding_side")?;
        check_side(&folder, &config, "truncation_side")?;

        let id_of = |token: &AddedToken, role| {
            vocabulary.ids.get(&token.content).copied().ok_or_else(|| TokenizerError::MissingSpecialToken {
                file: vocabulary.file.clone(),
                token: token.content.clone(),
                role,
            })
        };
        let begin_id = id_of(&tokens.begin, "begin")?;
        let end_id = id_of(&tokens.end, "end")?;
        let pad_id = id_of(&tokens.pad, "pad")?;
        id_of(&tokens.unknown, "unknown")?;
        let unknown = tokens.unknown.content.clone();
        let backend = backend(vocabulary, &unknown, &tokens.all())?;
        Ok(Self { backend, begin_id, end_id, pad_id, length })
    }

    /// The ids of `text`: a begin token, as much of the text as fits, an end token, and pad tokens up to
    /// [`length`](Self::length). Takes time about linear in the text's length.
    ///
    /// # Errors
    /// [`EncodeError`], which no text should cause.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, EncodeError> {
        let encoding =
            self.backend.encode_fast(text, false).map_err(|error| EncodeError { reason: error.to_string() })?;
        let mut ids = Vec::with_capacity(self.length);
        ids.push(self.begin_id);
        ids.extend(encoding.get_ids().iter().take(self.length - 2));
        ids.push(self.end_id);
        ids.resize(self.length, self.pad_id);
        Ok(ids)
    }

    /// How many ids a text becomes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The id of the token that ends a text.
    pub fn end_id(&self) -> u32 {
        self.end_id
    }
}

/// The files of one tokenizer.
struct Folder<'a> {
    origin: &'a str,
    files: &'a [(&'a str, &'a [u8])],
}

impl Folder<'_> {
    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.origin)
    }

    fn malformed(&self, name: &str, reason: impl ToString) -> TokenizerError {
        TokenizerError::Malformed { file: self.path(name), reason: reason.to_string() }
    }

    fn bytes(&self, name: &str) -> Result<Option<&[u8]>, TokenizerError> {
        let Some((_, bytes)) = self.files.iter().find(|(file, _)| *file == name) else { return Ok(None) };
        let (size, limit) = (ByteCount::of(bytes.len()), Tokenizer::FILE_BYTES_MAX);
        if size > limit {
            return Err(TokenizerError::TooLarge { file: self.path(name), size, limit });
        }
        Ok(Some(bytes))
    }

    fn object(&self, name: &str) -> Result<Option<Map<String, Value>>, TokenizerError> {
        let Some(bytes) = self.bytes(name)? else { return Ok(None) };
        serde_json::from_slice(bytes).map(Some).map_err(|error| self.malformed(name, error))
    }
}

/// Tokens with their ids, and the pairs that merge, first merged first.
struct Vocabulary {
    /// Where the ids come from.
    file: String,
    ids: BTreeMap<String, u32>,
    merges: Vec<(String, String)>,
    /// `added_tokens` of a `tokenizer.json`.
    added: Vec<Value>,
}

impl Vocabulary {
    fn read(folder: &Folder<'_>, limits: TextLimits) -> Result<Self, TokenizerError> {
        match folder.object(BACKEND_FILE)? {
            Some(backend) => Self::from_backend(folder, backend, limits),
            None => Self::from_pair(folder, limits),
        }
    }

    fn from_backend(
        folder: &Folder<'_>,
        mut backend: Map<String, Value>,
        limits: TextLimits,
    ) -> Result<Self, TokenizerError> {
        let malformed = |reason: &str| folder.malformed(BACKEND_FILE, reason);
        let Some(Value::Object(mut model)) = backend.remove("model") else {
            return Err(malformed("`model` is not an object"));
        };
        match model.get("type").and_then(Value::as_str) {
            Some("BPE") | None => {}
            Some(other) => return Err(malformed(&format!("`model.type` is `{other}`; CLIP's is `BPE`"))),
        }
        let Some(Value::Object(vocab)) = model.remove("vocab") else {
            return Err(malformed("`model.vocab` is not an object"));
        };
        let Some(Value::Array(rows)) = model.remove("merges") else {
            return Err(malformed("`model.merges` is not a list"));
        };
        let ids = token_ids(folder, BACKEND_FILE, vocab, limits)?;
        let mut merges = Vec::with_capacity(rows.len());
        for (idx, row) in rows.iter().enumerate() {
            let pair = match row {
                Value::String(text) => text.split_once(' '),
                Value::Array(pair) => match pair.as_slice() {
                    [Value::String(left), Value::String(right)] => Some((left.as_str(), right.as_str())),
                    _ => None,
                },
                _ => None,
            };
            merges.push(
                checked_merge(pair, &ids).map_err(|reason| malformed(&format!("`model.merges[{idx}]` {reason}")))?,
            );
        }
        let added = match backend.remove("added_tokens") {
            Some(Value::Array(added)) => added,
            None | Some(Value::Null) => Vec::new(),
            Some(_) => return Err(malformed("`added_tokens` is not a list")),
        };
        Ok(Self { file: folder.path(BACKEND_FILE), ids, merges, added })
    }

    fn from_pair(folder: &Folder<'_>, limits: TextLimits) -> Result<Self, TokenizerError> {
        let missing = |missing| TokenizerError::MissingFile { origin: folder.origin.to_owned(), missing };
        let vocab = folder.object(VOCAB_FILE)?.ok_or_else(|| missing(VOCAB_FILE))?;
        let merges = folder.bytes(MERGES_FILE)?.ok_or_else(|| missing(MERGES_FILE))?;
        let text = std::str::from_utf8(merges).map_err(|error| folder.malformed(MERGES_FILE, error))?;
        let ids = token_ids(folder, VOCAB_FILE, vocab, limits)?;
        let mut pairs = Vec::new();
        for (idx, line) in text.lines().enumerate() {
            if line.is_empty() || line.starts_with("#version") {
                continue;
            }
            let pair = line.split_once(' ').filter(|(_, right)| !right.contains(' '));
            let line_number = idx + 1;
            pairs.push(
                checked_merge(pair, &ids)
                    .map_err(|reason| folder.malformed(MERGES_FILE, format!("line {line_number} {reason}")))?,
            );
        }
        Ok(Self { file: folder.path(VOCAB_FILE), ids, merges: pairs, added: Vec::new() })
    }
}

fn token_ids(
    folder: &Folder<'_>,
    file: &str,
    vocab: Map<String, Value>,
    limits: TextLimits,
) -> Result<BTreeMap<String, u32>, TokenizerError> {
    let mut ids = BTreeMap::new();
    let mut tokens: BTreeMap<u32, &str> = BTreeMap::new();
    for (token, id) in &vocab {
        let id = checked_id(folder, file, token, id, limits.vocab_size)?;
        if let Some(first) = tokens.insert(id, token) {
            let (first, second) = (shown(first), shown(token));
            return Err(TokenizerError::SharedId { file: folder.path(file), first, second, id });
        }
        ids.insert(token.clone(), id);
    }
    Ok(ids)
}

fn checked_id(
    folder: &Folder<'_>,
    file: &str,
    token: &str,
    id: &Value,
    vocab_size: usize,
) -> Result<u32, TokenizerError> {
    let number = id.as_u64().ok_or_else(|| folder.malformed(file, format!("the id of `{}` is {id}", shown(token))))?;
    u32::try_from(number).ok().filter(|_| number < vocab_size as u64).ok_or_else(|| {
        TokenizerError::IdBeyondVocabulary { file: folder.path(file), token: shown(token), id: number, vocab_size }
    })
}

/// The pair, if both parts and what they merge to are tokens.
fn checked_merge(pair: Option<(&str, &str)>, ids: &BTreeMap<String, u32>) -> Result<(String, String), String> {
    let (left, right) = pair.ok_or_else(|| "is not a pair of tokens".to_owned())?;
    for token in [left, right, &format!("{left}{right}")] {
        if !ids.contains_key(token) {
            return Err(format!("needs the token `{}`, which is not in the vocabulary", shown(token)));
        }
    }
    Ok((left.to_owned(), right.to_owned()))
}

/// The tokens with a role, and others that are found in a text before it is split.
struct SpecialTokens {
    begin: AddedToken,
    end: AddedToken,
    unknown: AddedToken,
    pad: AddedToken,
    /// In the order of their ids.
    others: Vec<AddedToken>,
}

impl SpecialTokens {
    /// As transformers: a config with `added_tokens_decoder` says it all; otherwise `special_tokens_map.json` overrides
    /// the config, and `added_tokens.json` and `tokenizer.json` may add tokens.
    fn read(folder: &Folder<'_>, config: &Map<String, Value>, vocabulary: &Vocabulary) -> Result<Self, TokenizerError> {
        let mut added_tokens = Vec::new();
        let mut map = Map::new();
        match config.get("added_tokens_decoder") {
            Some(Value::Object(added)) => {
                for (id, token) in added {
                    let id: u64 =
                        id.parse().map_err(|_| folder.malformed(CONFIG_FILE, format!("`{}` is no id", shown(id))))?;
                    let token = added_token(folder, CONFIG_FILE, "added_tokens_decoder", token)?;
                    added_tokens.push((CONFIG_FILE, id, token));
                }
            }
            None | Some(Value::Null) => {
                map = folder.object(SPECIAL_FILE)?.unwrap_or_default();
                for (token, id) in folder.object(ADDED_FILE)?.unwrap_or_default() {
                    let id = id.as_u64().ok_or_else(|| folder.malformed(ADDED_FILE, format!("{id} is no id")))?;
                    added_tokens.push((ADDED_FILE, id, AddedToken::from(token, false)));
                }
                for token in &vocabulary.added {
                    let id = token.get("id").and_then(Value::as_u64);
                    let id = id.ok_or_else(|| folder.malformed(BACKEND_FILE, "an added token has no id"))?;
                    let token = added_token(folder, BACKEND_FILE, "added_tokens", token)?;
                    added_tokens.push((BACKEND_FILE, id, token));
                }
            }
            Some(_) => return Err(folder.malformed(CONFIG_FILE, "`added_tokens_decoder` is not an object")),
        }
        let mut others = BTreeMap::new();
        for (file, id, token) in added_tokens {
            check_added(folder, vocabulary, file, id, &token)?;
            others.insert(id, token);
        }
        let role = |key: &str, default: &str| {
            let (file, value) = match map.get(key) {
                Some(value) if !value.is_null() => (SPECIAL_FILE, value),
                _ => (CONFIG_FILE, config.get(key).unwrap_or(&Value::Null)),
            };
            if value.is_null() {
                return Ok(AddedToken::from(default, true));
            }
            added_token(folder, file, key, value).map(|token| token.special(true))
        };
        Ok(Self {
            begin: role("bos_token", "<|startoftext|>")?,
            end: role("eos_token", "<|endoftext|>")?,
            unknown: role("unk_token", "<|endoftext|>")?,
            pad: role("pad_token", "<|endoftext|>")?,
            others: others.into_values().collect(),
        })
    }

    /// Each once; where two say different things about a token, the first one counts.
    fn all(&self) -> Vec<AddedToken> {
        let mut all: Vec<AddedToken> = Vec::new();
        for token in self.others.iter().chain([&self.begin, &self.end, &self.unknown, &self.pad]) {
            if all.iter().all(|known| known.content != token.content) {
                all.push(token.clone());
            }
        }
        all
    }
}

/// A token written as its text, or as an object with `content` and flags. A text is a special token.
fn added_token(folder: &Folder<'_>, file: &str, key: &str, value: &Value) -> Result<AddedToken, TokenizerError> {
    let content = match value {
        Value::String(text) => Some(text.as_str()),
        Value::Object(fields) => fields.get("content").and_then(Value::as_str),
        _ => None,
    };
    let content = content.filter(|content| !content.is_empty()).ok_or_else(|| {
        folder.malformed(file, format!("`{key}` is neither a text nor an object with the text `content`"))
    })?;
    let flag = |name: &str| value.get(name).and_then(Value::as_bool);
    let special = value.is_string() || flag("special").unwrap_or(false);
    Ok(AddedToken::from(content, special)
        .single_word(flag("single_word").unwrap_or(false))
        .lstrip(flag("lstrip").unwrap_or(false))
        .rstrip(flag("rstrip").unwrap_or(false))
        .normalized(flag("normalized").unwrap_or(!special)))
}

/// An added token is one of the vocabulary, under its own id.
fn check_added(
    folder: &Folder<'_>,
    vocabulary: &Vocabulary,
    file: &str,
    id: u64,
    token: &AddedToken,
) -> Result<(), TokenizerError> {
    match vocabulary.ids.get(&token.content) {
        Some(known) if u64::from(*known) == id => Ok(()),
        Some(known) => Err(folder.malformed(
            file,
            format!("the added token `{}` has the id {id}, but {known} in the vocabulary", shown(&token.content)),
        )),
        None => {
            Err(folder.malformed(file, format!("the added token `{}` is not in the vocabulary", shown(&token.content))))
        }
    }
}

fn sequence_length(
    folder: &Folder<'_>,
    config: &Map<String, Value>,
    limits: TextLimits,
) -> Result<usize, TokenizerError> {
    let value = config.get("model_max_length").filter(|value| !value.is_null());
    let length = match value {
        None => Some(limits.positions),
        Some(value) => value.as_u64().and_then(|length| usize::try_from(length).ok()),
    };
    length.filter(|length| (2..=limits.positions).contains(length)).ok_or_else(|| TokenizerError::Length {
        file: folder.path(CONFIG_FILE),
        length: value.map_or_else(|| limits.positions.to_string(), |value| shown(&value.to_string())),
        positions: limits.positions,
    })
}

fn check_side(folder: &Folder<'_>, config: &Map<String, Value>, key: &str) -> Result<(), TokenizerError> {
    match config.get(key) {
        None | Some(Value::Null) => Ok(()),
        Some(Value::String(side)) if side == "right" => Ok(()),
        Some(other) => {
            Err(folder.malformed(CONFIG_FILE, format!("`{key}` is {}; known: \"right\"", shown(&other.to_string()))))
        }
    }
}

fn backend(vocabulary: Vocabulary, unknown: &str, tokens: &[AddedToken]) -> Result<Backend, TokenizerError> {
    let file = vocabulary.file;
    let model = BPE::builder()
        .vocab_and_merges(vocabulary.ids.into_iter().collect::<Vocab>(), vocabulary.merges)
        .unk_token(unknown.to_owned())
        .end_of_word_suffix(WORD_END.to_owned())
        .cache_capacity(0)
        .build()
        .map_err(|error| TokenizerError::Malformed { file: file.clone(), reason: error.to_string() })?;
    let whitespace = Replace::new(ReplacePattern::Regex(r"\s+".to_owned()), " ").expect("the pattern is valid");
    let normalizer = Normalizers::new(vec![
        NormalizerWrapper::NFC(NFC),
        NormalizerWrapper::Replace(whitespace),
        NormalizerWrapper::Lowercase(Lowercase),
    ]);
    let words = SplitPattern::Regex(WORD_PATTERN.to_owned());
    let words = Split::new(words, SplitDelimiterBehavior::Removed, true).expect("the pattern is valid");
    // The second pattern, ByteLevel's own, is part of the reference too.
    let pre_tokenizer = PreTokenizers::new(vec![words.into(), ByteLevel::new(false, true, true).into()]);
    let mut backend = TokenizerImpl::new(model);
    backend.with_normalizer(Some(normalizer)).with_pre_tokenizer(Some(pre_tokenizer));
    backend.add_tokens(tokens);
    Ok(backend)
}

/// Foreign text, short enough for an error.
fn shown(text: &str) -> String {
    const CHARS_MAX: usize = 40;
    let mut shown = String::new();
    for character in text.chars().take(CHARS_MAX) {
        match character.is_control() {
            true => shown.extend(character.escape_default()),
            false => shown.push(character),
        }
    }
    if text.chars().nth(CHARS_MAX).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests;
