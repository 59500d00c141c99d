# What stands in the way of opening a function: each obstacle is made, told and taken away again.
# own: alone in its group; mate_0 and mate_1: together in one. boots: its firmware never does. huge: too large.
set -- $(functions 0x15b3)
own=$1 boots=$2 gone=$3 huge=$4 mate_0=$5 mate_1=$6 unreset_0=$7 unreset_1=$8
edu=$(functions 0x1234)

echo "@@functions $*"
node() { echo "/dev/vfio/$(group "$1")"; }
pingpong() { mlx5 pingpong "$1" --iters 16; }
few_files() { (ulimit -n 10 && pingpong "$own"); }

# The node of a bound function's group is not there, as in a container.
no_node() {
    mv "$(node "$own")" /dev/vfio/elsewhere
    pingpong "$own"
    no_node_code=$?
    mv /dev/vfio/elsewhere "$(node "$own")"
    return $no_node_code
}

# The second function of a group while a program has the first one.
beside_its_mate() {
    mlx5 pingpong "$mate_0" --iters 10000000 --events > /tmp/running 2>&1 &
    running=$!
    wait_for_interrupts
    pingpong "$mate_1"
    beside_code=$?
    kill $running
    wait $running
    return $beside_code
}

step "no such function" pingpong 0000:7f:00.0
step "no address" pingpong 7f:00
step "no VFIO: pingpong" pingpong "$own"
step "no VFIO: bind" mlx5 bind "$own"
load_modules vfio_pci
step "no IOMMU module of VFIO: bind" mlx5 bind "$own"
step "no IOMMU module of VFIO: pingpong" pingpong "$own"
load_modules vfio_iommu_type1
step "not bound, no driver" pingpong "$boots"
step "firmware that never boots: bind" mlx5 bind "$boots"
step "firmware that never boots: pingpong" mlx5 pingpong "$boots" --firmware-wait 2

step "a foreign device: bind" mlx5 bind "$edu"
give "$edu" vfio-pci
step "a foreign device: pingpong" pingpong "$edu"

step "too few vectors" mlx5 pingpong "$own" --vectors 64
step "as many vectors as there are" mlx5 pingpong "$own" --vectors 32 --events --iters 16
step "too few files" few_files
step "no node" no_node

sleep 1000 3<> "$(node "$own")" &
holder=$!
usleep 200000
step "busy: pingpong" pingpong "$own"
step "busy: list" mlx5 list
step "busy: unbind" mlx5 unbind "$own"
kill $holder
wait $holder
step "busy no longer" pingpong "$own"

step "no permission: pingpong" as_user "mlx5 pingpong $own"
step "no permission: bind" as_user "mlx5 bind $mate_0"
chown user "$(node "$own")"
step "locked memory" as_user "ulimit -l 64; mlx5 pingpong $own"
# Enough to open the function, whose first piece of memory takes 2 MiB of it.
step "locked memory while it runs: pingpong" as_user "ulimit -l 3072; mlx5 pingpong $own --size 131072"
step "locked memory while it runs: memory of the program" as_user "ulimit -l 3072; mlx5-lab-probe memory $own --bytes 2000000"
chmod 600 /dev/vfio/vfio
step "no permission: container" as_user "mlx5 pingpong $own"
chmod 666 /dev/vfio/vfio
step "permission: pingpong" as_user "mlx5 pingpong $own --iters 16"
step "permission: selftest" as_user "mlx5 selftest $own --quick"

step "unreset: bind" mlx5 bind "$unreset_0" "$unreset_1"
step "unreset: pingpong" pingpong "$unreset_0"

step "registers without a place: bind" mlx5 bind "$huge"
step "registers without a place: pingpong" pingpong "$huge"

step "group: one bound, no driver on the other" mlx5 bind "$mate_0"
step "group: opened all the same" pingpong "$mate_0"
load_modules mlx5_core
wait_for 10 -e "$pci/$mate_1/driver"
step "group: the other's driver" driver "$mate_1"
step "group: not viable" pingpong "$mate_0"
step "group: not viable, list" mlx5 list
step "not bound, another driver" pingpong "$mate_1"
step "group: bind the other" mlx5 bind "$mate_1"
step "group: viable" pingpong "$mate_0"
step "group: the second function of it" beside_its_mate
step "unbind: to the driver before" mlx5 unbind "$mate_1"
step "unbind: done already" mlx5 unbind "$mate_1"

step "gone: bind" mlx5 bind "$gone"
ask "kill the model"
step "gone: list" mlx5 list
step "gone: pingpong" pingpong "$gone"
step "gone: the others work" pingpong "$own"
step "kernel log" dmesg -r
