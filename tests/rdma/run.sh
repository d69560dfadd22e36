# What the guest runs: each program to its end, and no longer than it may. PULLS is set by test.sh.
status=0
bounded() {
    seconds=$1
    shift
    echo "guest: at $(cut -d ' ' -f 1 /proc/uptime) s: $*"
    timeout -s KILL "$seconds" "$@" || { echo "guest: FAILED ($?): $*"; status=1; }
}
bounded 120 peers --test-threads 1 --nocapture
bounded 240 contract --test-threads 1 rdma::
bounded 240 links --test-threads 1 rdma:: rdma_once_in_use::
bounded 240 links --test-threads 1 --nocapture processes::
# The cluster's program is looked for beside the folder of its caller. Each role is another user, for processes of one user share memory
# on one host; what a user may do here is to read every user's files and to keep memory locked, as an operator would have allowed it.
cat >/usr/symphony <<'END'
#!/bin/sh
case $1 in
scheduler) user=1001 ;;
frontend) user=1002 ;;
backend) user=1003 ;;
*) exec /usr/bin/symphony "$@" ;;
esac
caps=+dac_override,+ipc_lock
exec /usr/bin/setpriv --reuid=$user --regid=$user --clear-groups --inh-caps=$caps --ambient-caps=$caps /usr/bin/symphony "$@"
END
chmod 755 /usr/symphony
bounded 240 over_rdma --test-threads 1 --ignored --nocapture
if [ "$PULLS" -gt 0 ]; then
    echo "guest: the figures that follow are of Soft-RoCE, RDMA in software, on an emulated machine"
    bounded 300 payload-pull --rdma --pulls "$PULLS"
    bounded 120 frame-rate --rdma --seconds 3 --latencies 2000
fi
echo "guest: at $(cut -d ' ' -f 1 /proc/uptime) s: done"
[ $status = 0 ]
