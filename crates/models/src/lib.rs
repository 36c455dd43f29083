//! Model families, as configured by their checkpoints: clip, unet, vae, srvgg.
