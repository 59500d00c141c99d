# The ground that the other scenes of job `vfio` stand on, without the project's tool.
first=$(functions 0x15b3 | sed -n 1p)
second=$(functions 0x15b3 | sed -n 2p)
edu=$(functions 0x1234 | sed -n 1p)

# opens PATH...: whether the user may open each of them.
opens() {
    for path in "$@"; do
        as_user "exec 3<>$path" 2> /dev/null && echo "may open" || echo "may not open"
    done
}

# Behind virtio-iommu, Linux 6.12 gives a function its group when a driver is bound to it, not before.
show_groups() {
    echo "functions $(group "$first") $(group "$second")"
    cat "$pci/$first/iommu_group/type"
}

echo 8 > /proc/sys/vm/nr_hugepages
step "VFIO loads" load_vfio
step "a function is bound by hand" give "$first" vfio-pci
step "another function is bound by hand" give "$second" vfio-pci
step "a foreign device is bound by hand" give "$edu" vfio-pci
step "groups" show_groups
step "device nodes" ls /dev/vfio/vfio "/dev/vfio/$(group "$first")" "/dev/vfio/$(group "$edu")"
step "a user without access" opens "/dev/vfio/$(group "$first")"
chown user "/dev/vfio/$(group "$first")"
step "a user with access" opens "/dev/vfio/$(group "$first")"
step "a limit of locked memory" as_user "ulimit -l 64; ulimit -l"
step "huge pages" grep HugePages_ /proc/meminfo
step "traces" traces
ask "kill the model"
step "a function that is gone" od -An -tx1 -N4 "$pci/$first/config"
