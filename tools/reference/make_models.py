"""Makes the random tiny models in fixtures/models: diffusers folders that differ in everything a config can say.

| folder | what it exercises                                                                                  | stored |
|--------|----------------------------------------------------------------------------------------------------|--------|
| sd15   | conv projections, `attention_head_dim` = number of heads, quick_gelu, epsilon, VAE factor 8;       | f32    |
|        | text encoder with the `text_model.` prefix, `position_ids` and eos id 2, as published;             |        |
|        | UNet and VAE configs with only the keys of 2022, so that every later default is needed             |        |
| sd2    | linear projections, heads per block, v-prediction, gelu, trailing spacing, zero-terminal SNR       | f16    |
| sdxl   | two tokenizers and text encoders, `text_time`, transformer depths per block, sharded UNet          | f16    |
| vae4   | VAE factor 4 with odd channel counts, scaling and shift, no quant convs, 3 latent channels         | bf16   |
| groups | groups that differ between UNet and VAE, layers per block list, unlike blocks, mid without attention | f32  |

Weights are normal with a variance that keeps activations of order 1; every norm weight, bias and zero-initialised
convolution is randomised, so a parameter that is ignored or swapped shows up in the goldens.
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from common import MODELS, REPO, load_pipeline, normal, quiet, sort_metadata

from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    EulerDiscreteScheduler,
    StableDiffusionPipeline,
    StableDiffusionXLPipeline,
    UNet2DConditionModel,
)
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection, CLIPTokenizer

MERGE_COUNT = 900
SPECIAL = ["<|startoftext|>", "<|endoftext|>"]


def make_tokenizer(source, folder, pad_token):
    """The first merges of a CLIP BPE: a prefix of a merge list is closed, so it is a tokenizer of its own."""
    folder.mkdir(parents=True)
    vocabulary = json.loads((source / "vocab.json").read_text())
    merges = [line for line in (source / "merges.txt").read_text().split("\n")[1:] if line][:MERGE_COUNT]
    tokens = sorted(vocabulary, key=vocabulary.get)[:512] + [merge.replace(" ", "") for merge in merges] + SPECIAL
    assert len(set(tokens)) == len(tokens)
    ids = {token: index for index, token in enumerate(tokens)}
    (folder / "vocab.json").write_text(json.dumps(ids, ensure_ascii=False))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    names = {"bos_token": SPECIAL[0], "eos_token": SPECIAL[1], "unk_token": SPECIAL[1], "pad_token": pad_token}
    (folder / "special_tokens_map.json").write_text(json.dumps(names))
    config = {"tokenizer_class": "CLIPTokenizer", "add_prefix_space": False, **names}
    config |= {"do_lower_case": True, "errors": "replace", "model_max_length": 77}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return len(tokens)


def randomise(module, key):
    """Fills every parameter from its own name."""
    for name, parameter in module.named_parameters():
        shape, seed = tuple(parameter.shape), f"{key}/{name}"
        if "embedding.weight" in name:
            value = normal(seed, *shape, scale=0.7)
        elif name.endswith("bias"):
            value = normal(seed, *shape, scale=0.3)
        elif len(shape) == 1:
            value = normal(seed, *shape, scale=0.25, shift=1.0)
        else:
            fan_in = parameter[0].numel()
            sharp = any(part in name for part in ("to_q", "to_k", "q_proj", "k_proj"))
            value = normal(seed, *shape, scale=(1.5 if sharp else 1.0) / fan_in**0.5)
        parameter.data.copy_(value)
    return module.eval()


def text_config(vocab_size, **options):
    defaults = dict(
        vocab_size=vocab_size, max_position_embeddings=77, bos_token_id=vocab_size - 2, eos_token_id=vocab_size - 1,
        pad_token_id=vocab_size - 1,
    )
    return CLIPTextConfig(**{**defaults, **options})


UNET_KEYS_2022 = """_class_name _diffusers_version act_fn attention_head_dim block_out_channels center_input_sample
cross_attention_dim down_block_types downsample_padding flip_sin_to_cos freq_shift in_channels layers_per_block
mid_block_scale_factor norm_eps norm_num_groups out_channels sample_size up_block_types""".split()
VAE_KEYS_2022 = """_class_name _diffusers_version act_fn block_out_channels down_block_types in_channels latent_channels
layers_per_block norm_num_groups out_channels sample_size up_block_types""".split()


def keep_config_keys(path, keys):
    config = json.loads(path.read_text())
    path.write_text(json.dumps({key: config[key] for key in keys}, indent=1) + "\n")


def rewrite(path, change):
    """Rewrites one safetensors file through `change(tensors)`."""
    tensors = change(load_file(path))
    save_file({name: tensors[name].contiguous() for name in sorted(tensors)}, path, metadata={"format": "pt"})
    sort_metadata(path)


def published_text_names(tensors, position_ids):
    """The names that published checkpoints use, which transformers 5 no longer writes."""
    named = {f"text_model.{name}": tensor for name, tensor in tensors.items()}
    if position_ids:
        named["text_model.embeddings.position_ids"] = torch.arange(77).unsqueeze(0)
    return named


def check_reload(folder, pipeline):
    """The folder loads to the values that were saved: nothing missing, nothing under another name."""
    loaded = load_pipeline(folder)
    for component in ("unet", "vae", "text_encoder", "text_encoder_2"):
        module = getattr(pipeline, component, None)
        if module is not None:
            values = dict(getattr(loaded, component).named_parameters())
            for name, parameter in module.named_parameters():
                assert torch.equal(values.pop(name), parameter.float()), f"{folder.name}: {component}.{name}"
            assert not values
            check_every_parameter_matters(folder.name, component, getattr(loaded, component))


def check_every_parameter_matters(name, component, module):
    """A parameter with other values of the same size changes the component's output (or the golden of
    its middle block) clearly: no golden can pass with one ignored."""

    def outputs():
        if component == "unet":
            config = module.config
            conditions = {
                "text_embeds": normal("check/pooled", 1, 20), "time_ids": torch.tensor([[96.0, 64, 0, 0, 96, 64]])
            }
            sample = normal("check/sample", 1, config.in_channels, 16, 16)
            context = normal("check/context", 1, 77, config.cross_attention_dim)
            middle = []
            hook = module.mid_block.register_forward_hook(lambda _, __, out: middle.append(out))
            out = module(sample, torch.tensor([500.0]), context, added_cond_kwargs=conditions).sample
            hook.remove()
            return [out, *middle]
        if component == "vae":
            image = normal("check/image", 1, 3, 32, 48, scale=0.5)
            return [
                module.encode(image).latent_dist.parameters,
                module.decode(normal("check/latent", 1, module.config.latent_channels, 4, 6)).sample,
            ]
        ids = torch.randint(0, module.config.vocab_size, (64, 77), generator=torch.Generator().manual_seed(0))
        out = module(ids)
        return [out.text_embeds, out.last_hidden_state] if component == "text_encoder_2" else [out.last_hidden_state]

    before, weak = outputs(), []
    for parameter_name, parameter in module.named_parameters():
        kept = parameter.data.clone()
        parameter.data.add_(normal(f"check/{parameter_name}", *parameter.shape, scale=kept.std().item()))
        change = max((a - b).abs().max().item() for a, b in zip(before, outputs()))
        parameter.data.copy_(kept)
        # A key bias shifts every score of a query alike, which softmax removes: it can't matter.
        softmax_removes = parameter_name.endswith(("k_proj.bias", "to_k.bias"))
        if change < 1e-3 and not softmax_removes:
            weak.append((parameter_name, change))
    assert not weak, f"{name}: {component}: {weak}"


def save(name, pipeline, dtype, **options):
    folder = MODELS / name
    for component in ("unet", "vae", "text_encoder", "text_encoder_2"):
        module = getattr(pipeline, component, None)
        if module is not None:
            randomise(module, f"{name}/{component}").to(dtype)
    tokenizers = [part for part in ("tokenizer", "tokenizer_2") if (folder / part).exists()]
    kept = {part: {file.name: file.read_bytes() for file in (folder / part).iterdir()} for part in tokenizers}
    pipeline.save_pretrained(folder)
    if "unet_shard" in options:
        for file in (folder / "unet").iterdir():
            file.unlink()
        pipeline.unet.save_pretrained(folder / "unet", max_shard_size=options["unet_shard"])
    for part, files in kept.items():
        shutil.rmtree(folder / part)
        (folder / part).mkdir()
        for file_name, data in files.items():
            (folder / part / file_name).write_bytes(data)
    for path in sorted(folder.rglob("*.json")):
        value = json.loads(path.read_text())
        if path.parent.name not in ("tokenizer", "tokenizer_2"):
            value.pop("_name_or_path", None)
            path.write_text(json.dumps(value, indent=1) + "\n")
    for path in sorted(folder.rglob("*.safetensors")):
        rewrite(path, lambda tensors: tensors)
        path.chmod(0o644)
    if "position_ids" in options:
        rewrite(
            folder / "text_encoder" / "model.safetensors",
            lambda tensors: published_text_names(tensors, options["position_ids"]),
        )
    check_reload(folder, pipeline)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"fixtures/models/{name}: {size} bytes")


def stable_diffusion(folder, unet, vae, text_encoder, scheduler):
    return StableDiffusionPipeline(
        vae=vae, text_encoder=text_encoder, tokenizer=CLIPTokenizer.from_pretrained(folder / "tokenizer"), unet=unet,
        scheduler=scheduler, safety_checker=None, feature_extractor=None, requires_safety_checker=False,
    )


def make_sd15(source):
    folder = MODELS / "sd15"
    vocab_size = make_tokenizer(source, folder / "tokenizer", SPECIAL[1])
    unet = UNet2DConditionModel(
        sample_size=16, in_channels=4, out_channels=4, block_out_channels=(8, 8, 16, 16), layers_per_block=2,
        down_block_types=("CrossAttnDownBlock2D",) * 3 + ("DownBlock2D",),
        up_block_types=("UpBlock2D",) + ("CrossAttnUpBlock2D",) * 3,
        attention_head_dim=4, cross_attention_dim=16, norm_num_groups=4,
    )
    vae = AutoencoderKL(
        sample_size=128, block_out_channels=(4, 8, 8, 16), layers_per_block=1, norm_num_groups=2, latent_channels=4,
        down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
        scaling_factor=0.18215,
    )
    text = CLIPTextModel(text_config(
        vocab_size, hidden_size=16, intermediate_size=64, num_attention_heads=2, num_hidden_layers=3,
        hidden_act="quick_gelu", projection_dim=16, bos_token_id=0, eos_token_id=2, pad_token_id=1,
    ))
    scheduler = DDIMScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", clip_sample=False, set_alpha_to_one=False,
        steps_offset=1, prediction_type="epsilon", timestep_spacing="leading",
    )
    save("sd15", stable_diffusion(folder, unet, vae, text, scheduler), torch.float32, position_ids=True)
    keep_config_keys(folder / "unet" / "config.json", UNET_KEYS_2022)
    keep_config_keys(folder / "vae" / "config.json", VAE_KEYS_2022)


def make_sd2(source):
    folder = MODELS / "sd2"
    vocab_size = make_tokenizer(source, folder / "tokenizer", "!")
    unet = UNet2DConditionModel(
        sample_size=24, in_channels=4, out_channels=4, block_out_channels=(16, 24, 32), layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
        attention_head_dim=[2, 3, 4], cross_attention_dim=32, norm_num_groups=8, use_linear_projection=True,
        upcast_attention=True,
    )
    vae = AutoencoderKL(
        sample_size=192, block_out_channels=(8, 8, 16, 16), layers_per_block=2, norm_num_groups=4, latent_channels=4,
        down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
        scaling_factor=0.18215,
    )
    # The published text encoder of SD 2 is the 24-layer one cut to 23, so its last layer is the penultimate one.
    text = CLIPTextModel(text_config(
        vocab_size, hidden_size=32, intermediate_size=64, num_attention_heads=4, num_hidden_layers=2,
        hidden_act="gelu", projection_dim=32, pad_token_id=0,
    ))
    scheduler = DDIMScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", clip_sample=False, set_alpha_to_one=False,
        steps_offset=1, prediction_type="v_prediction", timestep_spacing="trailing", rescale_betas_zero_snr=True,
    )
    save("sd2", stable_diffusion(folder, unet, vae, text, scheduler), torch.float16)


def make_sdxl(source):
    folder = MODELS / "sdxl"
    vocab_size = make_tokenizer(source, folder / "tokenizer", SPECIAL[1])
    make_tokenizer(source, folder / "tokenizer_2", "!")
    unet = UNet2DConditionModel(
        sample_size=16, in_channels=4, out_channels=4, block_out_channels=(8, 16, 24), layers_per_block=2,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        transformer_layers_per_block=[1, 2, 3], attention_head_dim=[1, 2, 4], cross_attention_dim=40,
        norm_num_groups=4, use_linear_projection=True, addition_embed_type="text_time", addition_time_embed_dim=8,
        projection_class_embeddings_input_dim=20 + 6 * 8,
    )
    vae = AutoencoderKL(
        sample_size=128, block_out_channels=(8, 8, 16, 16), layers_per_block=1, norm_num_groups=4, latent_channels=4,
        down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
        scaling_factor=0.13025, force_upcast=False,
    )
    text = CLIPTextModel(text_config(
        vocab_size, hidden_size=16, intermediate_size=32, num_attention_heads=2, num_hidden_layers=3,
        hidden_act="quick_gelu", projection_dim=16, bos_token_id=0, eos_token_id=2, pad_token_id=1,
    ))
    text_2 = CLIPTextModelWithProjection(text_config(
        vocab_size, hidden_size=24, intermediate_size=48, num_attention_heads=3, num_hidden_layers=4,
        hidden_act="gelu", projection_dim=20, bos_token_id=0, eos_token_id=2, pad_token_id=1,
    ))
    scheduler = EulerDiscreteScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", steps_offset=1, prediction_type="epsilon",
        timestep_spacing="leading", interpolation_type="linear", use_karras_sigmas=False,
    )
    pipeline = StableDiffusionXLPipeline(
        vae=vae, text_encoder=text, text_encoder_2=text_2, unet=unet, scheduler=scheduler,
        tokenizer=CLIPTokenizer.from_pretrained(folder / "tokenizer"),
        tokenizer_2=CLIPTokenizer.from_pretrained(folder / "tokenizer_2"),
        force_zeros_for_empty_prompt=True, add_watermarker=False,
    )
    save("sdxl", pipeline, torch.float16, unet_shard="300KB", position_ids=False)


def make_vae4(source):
    folder = MODELS / "vae4"
    vocab_size = make_tokenizer(source, folder / "tokenizer", SPECIAL[1])
    unet = UNet2DConditionModel(
        sample_size=16, in_channels=3, out_channels=3, block_out_channels=(12, 20, 28), layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
        attention_head_dim=2, cross_attention_dim=20, norm_num_groups=4, norm_eps=1e-6,
    )
    vae = AutoencoderKL(
        sample_size=64, block_out_channels=(9, 15, 21), layers_per_block=2, norm_num_groups=3, latent_channels=3,
        down_block_types=("DownEncoderBlock2D",) * 3, up_block_types=("UpDecoderBlock2D",) * 3,
        scaling_factor=0.4711, shift_factor=0.1159, use_quant_conv=False, use_post_quant_conv=False,
    )
    text = CLIPTextModel(text_config(
        vocab_size, hidden_size=20, intermediate_size=36, num_attention_heads=5, num_hidden_layers=2,
        hidden_act="quick_gelu", projection_dim=20,
    ))
    scheduler = EulerDiscreteScheduler(
        beta_start=0.0001, beta_end=0.02, beta_schedule="linear", prediction_type="sample",
        timestep_spacing="linspace",
    )
    save("vae4", stable_diffusion(folder, unet, vae, text, scheduler), torch.bfloat16)


def make_groups(source):
    folder = MODELS / "groups"
    vocab_size = make_tokenizer(source, folder / "tokenizer", SPECIAL[1])
    unet = UNet2DConditionModel(
        sample_size=20, in_channels=4, out_channels=4, block_out_channels=(12, 18, 24, 12), layers_per_block=[1, 2, 1, 3],
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D", "CrossAttnDownBlock2D"),
        mid_block_type="UNetMidBlock2D",
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=[2, 1, 3, 4], cross_attention_dim=24, norm_num_groups=6, flip_sin_to_cos=False, freq_shift=1,
    )
    vae = AutoencoderKL(
        sample_size=40, block_out_channels=(8, 12), layers_per_block=1, norm_num_groups=2, latent_channels=4,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
        scaling_factor=0.6, mid_block_add_attention=False,
    )
    text = CLIPTextModel(text_config(
        vocab_size, hidden_size=24, intermediate_size=56, num_attention_heads=3, num_hidden_layers=1,
        hidden_act="quick_gelu", projection_dim=24, layer_norm_eps=1e-6,
    ))
    scheduler = DDIMScheduler(
        beta_start=0.0001, beta_end=0.02, beta_schedule="squaredcos_cap_v2", clip_sample=False, set_alpha_to_one=True,
        steps_offset=0, prediction_type="v_prediction", timestep_spacing="leading",
    )
    save("groups", stable_diffusion(folder, unet, vae, text, scheduler), torch.float32)


def main():
    quiet()
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else REPO / "assets" / "emoji64" / "tokenizer"
    for make in (make_sd15, make_sd2, make_sdxl, make_vae4, make_groups):
        shutil.rmtree(MODELS / make.__name__.removeprefix("make_"), ignore_errors=True)
        make(source)


if __name__ == "__main__":
    main()
