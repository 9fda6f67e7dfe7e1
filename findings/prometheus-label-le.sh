#!/bin/sh
# What Prometheus 3 makes of the label `le`.
#
# Guess: it is stored as the target writes it: `le="1"` is `le="1"`.
# Truth: Prometheus 2 does so. Prometheus 3 writes the number again: "1" is stored as "1.0", "0.50" as
#   "0.5" and "1048576" as "1.048576e+06". It does so by the last `# TYPE` line above, not by the name:
#   series without a type change after a histogram of another name, also if they are no buckets, and
#   stay at the top of the page or after a gauge. So the order of a page's metrics changes labels.
# Version: Prometheus 2.53.3+ds1-2 of Debian 13 (trixie) and 3.5.3+ds1-6 of Debian unstable (sid).
# Who meets it: rules and boards that ask for `le="1"` find nothing after an upgrade, without an error.
#   Scripts that write pages without types. Quantiles of summaries change in the same way.
#
# Fetches the packages into a temporary folder and runs them in a network namespace. Needs root.
# Exits with 1 if the versions behave otherwise.
set -eu

stored() {
    sh "$(dirname "$0")/in-debian" "$1" prometheus <<'END'
cat >/tmp/page <<'PAGE'
before{le="1"} 1
# TYPE wait_seconds histogram
wait_seconds_bucket{le="0.50"} 1
wait_seconds_bucket{le="1"} 1
wait_seconds_bucket{le="1048576"} 2
wait_seconds_bucket{le="+Inf"} 2
wait_seconds_sum 3
wait_seconds_count 2
after_histogram{le="1"} 1
# TYPE limit gauge
limit{le="1"} 1
after_gauge{le="1"} 1
# TYPE delay_seconds summary
delay_seconds{quantile="1"} 3
PAGE
cat >/tmp/answer <<'ANSWER'
sed -u '/^.$/q' >/dev/null
printf 'HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\r\n'
cat /tmp/page
ANSWER
cat >/tmp/settings <<'SETTINGS'
global: { scrape_interval: 1s, scrape_timeout: 1s }
scrape_configs: [{ job_name: node, static_configs: [{ targets: ['127.0.0.1:9100'] }] }]
SETTINGS
ip link set lo up
socat TCP-LISTEN:9100,fork,reuseaddr EXEC:'sh /tmp/answer' &
prometheus --config.file /tmp/settings --storage.tsdb.path /tmp/data --web.listen-address 127.0.0.1:9090 >&2 &
tries=0
until promtool query instant http://127.0.0.1:9090 '{le!=""} or {quantile!=""}' 2>/dev/null >/tmp/series && grep -q quantile= /tmp/series; do
    tries=$((tries + 1))
    [ "$tries" -lt 100 ] || exit 1
    sleep 0.2
done
# The end of `quantile` is `le`.
sed 's/{.*le="/ /; s/".*//' /tmp/series | sort
END
}

wrong=0
for suite in trixie sid; do
    series=$(stored "$suite" | paste -sd, -)
    echo "$suite: $series"
    case $suite in
    trixie) half=0.50 one=1 mega=1048576 ;;
    sid) half=0.5 one=1.0 mega=1.048576e+06 ;;
    esac
    buckets="wait_seconds_bucket +Inf,wait_seconds_bucket $half,wait_seconds_bucket $one,wait_seconds_bucket $mega"
    [ "$series" = "after_gauge 1,after_histogram $one,before 1,delay_seconds $one,limit 1,$buckets" ] || wrong=1
done
exit $wrong
