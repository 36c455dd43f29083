//! Which weights are where, and who may use them: plan, ring, lease, report.
