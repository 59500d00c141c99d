# Script of the job `core`: the driver binds to the function, stays a while, leaves it, and is unloaded.
drivers=/sys/bus/pci/drivers/mlx5_core

find_function() {
    for device in /sys/bus/pci/devices/*; do
        if [ "$(cat "$device/vendor")" = 0x15b3 ]; then
            basename "$device"
            return
        fi
    done
}

# The driver that sysfs shows for the function.
driver() { basename "$(readlink "/sys/bus/pci/devices/$function/driver" || echo none)"; }

function=$(find_function)
if [ -n "$function" ]; then
    echo "@@function $(cat "/sys/bus/pci/devices/$function/device")"
    echo "@@iommu $(cat "/sys/bus/pci/devices/$function/iommu_group/type" || echo none)"
fi
dmesg -c > /dev/null
if load_modules; then
    wait_for 10 -e "$drivers/$function"
    echo "@@driver $(driver)"
    # Long enough for the driver to look at the function's health.
    sleep 4
    [ "$(driver)" = none ] || echo "$function" > "$drivers/unbind"
    echo "@@driver $(driver)"
    rmmod mlx5_core
    echo "@@module $([ -e /sys/module/mlx5_core ] && echo loaded || echo gone)"
fi
print_dmesg
