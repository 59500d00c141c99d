# Functions that are not like the ordinary one: selftest does what there is to do with each, and says what there is not.
set -- $(functions 0x15b3)
load_vfio
step "all are bound" mlx5 bind "$@"
step "InfiniBand" mlx5 selftest "$1" --quick
step "no link" mlx5 selftest "$2" --quick
step "InfiniBand, no link" mlx5 selftest "$3" --quick
step "capabilities that are missing" mlx5 selftest "$4" --quick
step "a device that corrupts a message" mlx5 selftest "$5" --quick
step "InfiniBand: pingpong" mlx5 pingpong "$1" --iters 64 --events
step "a physical function" mlx5 selftest "$6" --quick
step "BAR 0 beyond 4 GiB, other numbers of vectors" mlx5 pingpong "$7" --iters 64 --events
step "all are given back" mlx5 unbind "$@"
step "kernel log" dmesg -r
