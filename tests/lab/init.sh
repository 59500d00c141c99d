#!/bin/busybox sh
# First program of a guest: sets up the usual mounts, runs the job's script, powers off.
# Lines that begin with @@ are for the lab.
/bin/busybox mkdir -p /proc /sys /dev /usr/bin /usr/sbin /sbin
/bin/busybox --install -s
export PATH=/bin:/sbin:/usr/bin:/usr/sbin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev

# Loads every module of the image, in order; the last one is what the job is about.
load_modules() {
    for module in $(cat /modules/order); do
        insmod "/modules/$module.ko" || { echo "@@failed insmod $module"; return 1; }
    done
}

# Prints what the kernel has logged since `dmesg -c`, with levels.
print_dmesg() {
    echo "@@dmesg-begin"
    dmesg -r
    echo "@@dmesg-end"
}

# Waits for `test ARGUMENTS` to hold: wait_for SECONDS ARGUMENTS.
wait_for() {
    tenths=$(($1 * 10))
    shift
    while ! test "$@"; do
        [ $tenths -gt 0 ] || return 1
        tenths=$((tenths - 1))
        usleep 100000
    done
}

echo "@@userspace $(uname -r)"
. /job.sh
echo "@@done"
poweroff -f
