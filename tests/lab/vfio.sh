# What every script of the job `vfio` begins with. A step is a command whose exit code, output and time the lab judges.
pci=/sys/bus/pci/devices
echo 'root:x:0:0::/:/bin/sh' > /etc/passwd
echo 'user:x:1000:1000::/:/bin/sh' >> /etc/passwd
# Messages of the kernel in the middle of a step's output would be taken for a part of it.
dmesg -n 1

# Seconds since the boot, with hundredths.
now() { cut -d ' ' -f 1 /proc/uptime; }

# step NAME COMMAND...: runs the command and prints what it said, its exit code, and when it began and ended.
step() {
    step_name=$1
    shift
    step_begin=$(now)
    "$@" > /tmp/step 2>&1 < /dev/null
    step_code=$?
    echo "@@step $step_name"
    cat /tmp/step
    echo
    echo "@@end $step_code $step_begin $(now)"
}

# ask WORDS: a mark for the lab; goes on when the lab has answered with a line, which is printed.
ask() {
    echo "@@$*"
    read -r answer
    echo "@@answered $answer"
}

# The addresses of the functions with a vendor, in order: functions VENDOR.
functions() {
    for device in $pci/*; do
        [ "$(cat "$device/vendor")" != "$1" ] || basename "$device"
    done
}

# The driver of a function, `none` without one.
driver() { basename "$(readlink "$pci/$1/driver" || echo none)"; }

# The number of a function's IOMMU group.
group() { basename "$(readlink "$pci/$1/iommu_group")"; }

# give BDF DRIVER: takes a function from its driver and gives it to another one, by hand.
give() {
    [ ! -e "$pci/$1/driver" ] || echo "$1" > "$pci/$1/driver/unbind"
    echo "$2" > "$pci/$1/driver_override"
    echo "$1" > /sys/bus/pci/drivers_probe
    [ "$(driver "$1")" = "$2" ]
}

# Loads what VFIO needs, with what an IOMMU whose interrupts are not remapped asks for.
load_vfio() {
    load_modules vfio_pci || return 1
    [ "$IOMMU" != virtio ] || echo Y > /sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts
}

# Waits until a program listens to a function's interrupts.
wait_for_interrupts() {
    tenths=100
    until grep -q vfio-msix /proc/interrupts || [ $tenths -eq 0 ]; do
        tenths=$((tenths - 1))
        usleep 100000
    done
}

# as_user COMMAND: runs a shell's command as the user `user`.
as_user() { su user -c "$1"; }

# What a program may leave behind, in lines that do not change when it has left nothing.
traces() {
    echo "interrupts $(grep -c vfio /proc/interrupts)"
    grep HugePages_Free /proc/meminfo
    echo "open $(ls -l /proc/[0-9]*/fd 2>/dev/null | grep -c vfio)"
    for function in $(functions 0x15b3); do
        # Bit 2 of the command register, which stands at offset 4.
        echo "bus master of $function: $(($(od -An -tu1 -j4 -N1 "$pci/$function/config") >> 2 & 1))"
    done
}
