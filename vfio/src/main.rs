//! The mlx5 tool.
fn main() {}
