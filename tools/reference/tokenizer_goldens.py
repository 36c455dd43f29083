"""Makes fixtures/goldens/tokenizer_MODEL.json (and tokenizer_sdxl_2.json for the second tokenizer): texts and their ids.

Usage: tokenizer_goldens.py [EMOJI64_FOLDER]

`ids` are with begin and end token, truncated to `max_length` (the last id is then the end token), not padded; the
pipelines pad to `max_length` with `pad_id`. `token_count` is the length before truncation.

The reference is transformers 5's CLIPTokenizer: NFC, whitespace runs to one space, lower case, then byte-level BPE.
Where the pad token is `!` (SD 2, SDXL's second tokenizer) it is a special token, so a `!` in the text gets its id (0),
not that of `!</w>`.
"""

import sys

from common import GOLDENS, quiet, model_folders, save_json

from transformers import CLIPTokenizer

TEXTS = [
    "",
    " ",
    "red heart",
    "Red HEART",
    "RED heart ON Fire",
    "  leading and   inner\t\twhitespace \n runs\r\n",
    "non\u00a0breaking\u2003em space\u200bzero width\u3000ideographic",
    "a photo of a cat, sitting on a mat.",
    "what?! no... yes; (maybe) [or] {not} <tag> a/b\\c a_b a-b a--b a+b=c 50% #1 @you ~ ^ ` | & * $9.99",
    "it's we're I've I'm he'll she'd don't 'quoted' \"double\" `back` 'S 'T",
    "\u2018curly\u2019 \u201cquotes\u201d \u00abguillemets\u00bb \u2026 \u2014 \u2013 it\u2019s",
    "0 1 12 123 2024 3d 4k 8K 1,000.50 x2 \u00bd \u00b2 \u2167 \u0664\u0665 \u0969",
    "&amp; &lt;b&gt; &quot;hi&quot; &#39;x&#39; &nbsp; &amp;amp; &copy",
    "caf\u00e9 na\u00efve \u00fcber \u00c5ngstr\u00f6m \u0141\u00f3d\u017a \u00d1o\u00f1o stra\u00dfe \u0130stanbul I\u0131",
    "cafe\u0301 nai\u0308ve u\u0308ber A\u030angstro\u0308m",
    "\u4f60\u597d\u4e16\u754c \u3053\u3093\u306b\u3061\u306f \uc548\ub155 \u041f\u0440\u0438\u0432\u0435\u0442 \u0393\u03b5\u03b9\u03ac \u03a3\u03a3 \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 \u0928\u092e\u0938\u094d\u0924\u0947 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "\u2764 \u2764\ufe0f \U0001f355 \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \U0001f44d\U0001f3fd red\u2764heart",
    "\ufb01ne \u2460 \uff21\uff22\uff23 \u212b \u2126",
    "control\x00null \x07bell \x1b[0m esc \x7f del \x85 nel \ufeffbom \ufffd",
    "tab\tnewline\nvertical\x0bform\x0cend \u2028line\u2029para",
    "<|startoftext|> red <|endoftext|> heart",
    "<|ENDOFTEXT|> <|endoftext|",
    "!",
    "hello! world!! !important ! ?!",
    "supercalifragilisticexpialidocious pneumonoultramicroscopicsilicovolcanoconiosis",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "redheart red_heart redHeart RedHeart red-heart",
    "(red heart:1.3), [blue], masterpiece, best quality, ((detailed)) <lora:x:0.8>",
    "grinning face with smiling eyes, cat with wry smile, woman health worker: medium skin tone",
    " ".join(["heart"] * 75),
    " ".join(["heart"] * 76),
    " ".join(["heart"] * 200),
    "red heart, " * 40 + "the end",
    "\U0001f355" * 40,
]


def main():
    quiet()
    for name, folder in model_folders(sys.argv[1:]):
        for part in ("tokenizer", "tokenizer_2"):
            if not (folder / part).exists():
                continue
            tokenizer = CLIPTokenizer.from_pretrained(folder / part)
            cases = []
            for text in TEXTS:
                whole = tokenizer(text).input_ids
                ids = tokenizer(text, truncation=True, max_length=77).input_ids
                cases.append({"text": text, "ids": ids, "token_count": len(whole)})
            suffix = part.removeprefix("tokenizer")
            save_json(
                GOLDENS / f"tokenizer_{name}{suffix}.json",
                {
                    "model": name, "folder": part, "max_length": 77, "bos_id": tokenizer.bos_token_id,
                    "eos_id": tokenizer.eos_token_id, "pad_id": tokenizer.pad_token_id, "cases": cases,
                },
                __file__, indent=None,
            )


if __name__ == "__main__":
    main()
