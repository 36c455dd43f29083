//! Sigma schedules, samplers, guidance, and noise equal to torch's CPU generator.
