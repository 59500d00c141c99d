#!/bin/busybox sh
# First program of a guest: sets up the usual mounts, runs the job's script, powers off.
# Lines that begin with @@ are for the lab.
/bin/busybox mkdir -p /proc /sys /dev /etc /run /tmp /usr/bin /usr/sbin /sbin
/bin/busybox chmod 1777 /tmp
/bin/busybox --install -s
export PATH=/bin:/sbin:/usr/bin:/usr/sbin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev

# load_modules [LAST]: loads the modules of the image in order, all or up to one; those that are there already stay.
load_modules() {
    for module in $(cat /modules/order); do
        if [ ! -e "/sys/module/$module" ]; then
            insmod "/modules/$module.ko" || { echo "@@failed insmod $module"; return 1; }
        fi
        [ "$module" != "$1" ] || return 0
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
