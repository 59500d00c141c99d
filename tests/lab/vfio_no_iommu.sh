# A machine without an IOMMU: no command gives the function away, and each says why.
function=$(functions 0x15b3)
step "without IOMMU: list" mlx5 list
step "without IOMMU: pingpong" mlx5 pingpong "$function"
load_vfio
step "without IOMMU: bind" mlx5 bind "$function"
step "without IOMMU: the driver stays" driver "$function"
