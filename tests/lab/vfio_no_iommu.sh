# A machine without an IOMMU: no command gives the function away, and each says why.
function=$(functions 0x15b3)
step "list" mlx5 list
step "pingpong" mlx5 pingpong "$function"
load_vfio
step "bind" mlx5 bind "$function"
step "the driver stays" driver "$function"
step "kernel log" dmesg -r
