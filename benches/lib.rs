//! What is measured stands in [`mlx5_vfio::bench`]: `mlx5 bench cq` prints it as multiples of the floor, and criterion watches the
//! same drains from one change to the next (`cargo bench -p mlx5-benches`).

pub use mlx5_vfio::bench::{rows, subject};
