#!/usr/bin/env bash
# Runs everything on a Debian machine: installs what is missing (as root), starts a Redis and a PostgreSQL of its own, runs lint, types,
# build, unused code and all tests, stops what it started. The last line is `N passed, N failed, N skipped`; the exit code is 0 only
# when nothing failed. With CI=true a service that is missing is a failure, otherwise its tests are skipped.
set -uo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d /tmp/errand-test.XXXXXX)
chmod 755 "$work"
redis_pid=''
postgres_data=''
policy=''
failed_steps=()

main() {
  install_packages
  install_modules || finish
  start_redis
  start_postgres
  step lint npx --no-install biome check .
  step types npm run --silent types
  step build node scripts/build.mjs
  step 'unused code' npx --no-install knip
  step tests npx --no-install vitest run --reporter=default --reporter=json --outputFile.json="$work/vitest.json"
  finish
}

step() {
  local name=$1
  shift
  echo "== $name"
  "$@" || failed_steps+=("$name")
}

# Says what failed and prints the counts, last of all.
finish() {
  stop_services
  for name in ${failed_steps[@]+"${failed_steps[@]}"}; do echo "failed: $name"; done
  node scripts/test-counts.mjs "$work/vitest.json"
  local counted=$?
  rm -rf "$work"
  [ "$counted" -eq 0 ] && [ ${#failed_steps[@]} -eq 0 ]
  exit
}

install_packages() {
  local wanted=()
  command -v redis-server >/dev/null || wanted+=(redis-server)
  [ -n "$(postgres_bin)" ] || wanted+=(postgresql)
  command -v chromium >/dev/null || wanted+=(chromium)
  # better-sqlite3 is compiled where no binary of it can be had.
  command -v python3 >/dev/null || wanted+=(python3)
  command -v make >/dev/null || wanted+=(make)
  command -v g++ >/dev/null || wanted+=(g++)
  [ ${#wanted[@]} -gt 0 ] || return 0
  if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "missing and not installable here: ${wanted[*]}"
    return 0
  fi
  echo "== installing ${wanted[*]}"
  forbid_service_starts
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${wanted[@]}" >"$work/apt.log" 2>&1 \
    || { tail -n 20 "$work/apt.log"; echo "could not install ${wanted[*]}"; }
  allow_service_starts
}

# Debian starts services when their package is installed; we start our own and want no others.
forbid_service_starts() {
  [ -e /usr/sbin/policy-rc.d ] && return 0
  policy=/usr/sbin/policy-rc.d
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
}

allow_service_starts() {
  [ -z "$policy" ] || rm -f "$policy"
  policy=''
}

install_modules() {
  if [ ! -e node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
    echo '== npm ci'
    npm ci --no-audit --no-fund || { failed_steps+=('npm ci'); return 1; }
  fi
}

free_port() {
  node -e 'const s = require("node:net").createServer(); s.listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close(); })'
}

start_redis() {
  if ! command -v redis-server >/dev/null; then missing redis-server; return; fi
  local port
  port=$(free_port)
  mkdir "$work/redis"
  redis-server --port "$port" --bind 127.0.0.1 --dir "$work/redis" --appendonly yes --save '' --daemonize no >"$work/redis.log" 2>&1 &
  redis_pid=$!
  if wait_for 'redis' redis-cli -h 127.0.0.1 -p "$port" ping; then export ERRAND_TEST_REDIS_URL="redis://127.0.0.1:$port"; else missing redis-server "$work/redis.log"; fi
}

# The newest installed version's programs.
postgres_bin() {
  local found
  found=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
  if [ -n "$found" ] && [ -x "$found/initdb" ]; then echo "$found"; fi
}

start_postgres() {
  local bin
  bin=$(postgres_bin)
  if [ -z "$bin" ]; then missing postgresql; return; fi
  # A directory of its own for data and socket; PostgreSQL refuses to run as root.
  postgres_data="$work/postgres"
  mkdir "$postgres_data"
  [ "$(id -u)" -ne 0 ] || chown postgres "$postgres_data"
  chmod 700 "$postgres_data"
  if as_postgres "$bin/initdb" -D "$postgres_data/data" -U errand -A trust -E UTF8 --locale=C.UTF-8 >"$work/postgres.log" 2>&1 \
    && as_postgres "$bin/pg_ctl" -D "$postgres_data/data" -w -l "$postgres_data/server.log" -o "-c listen_addresses='' -k $postgres_data" start >>"$work/postgres.log" 2>&1 \
    && as_postgres "$bin/createdb" -h "$postgres_data" -U errand errand_test >>"$work/postgres.log" 2>&1; then
    # The tests run as whoever started us; root may pass.
    export ERRAND_TEST_POSTGRES_URL="postgres://errand@localhost/errand_test?host=$postgres_data"
  else
    cat "$postgres_data/server.log" >>"$work/postgres.log" 2>/dev/null
    missing postgresql "$work/postgres.log"
  fi
}

as_postgres() {
  if [ "$(id -u)" -eq 0 ]; then (cd / && runuser -u postgres -- "$@"); else "$@"; fi
}

wait_for() {
  local name=$1
  shift
  for _ in $(seq 100); do
    if "$@" >/dev/null 2>&1; then return 0; fi
    sleep 0.1
  done
  echo "$name did not start"
  return 1
}

missing() {
  echo "$1 is not available; its tests are skipped"
  [ -z "${2:-}" ] || tail -n 20 "$2"
  [ "${CI:-}" != true ] || failed_steps+=("$1")
}

stop_services() {
  allow_service_starts
  if [ -n "$redis_pid" ]; then kill "$redis_pid" 2>/dev/null && wait "$redis_pid" 2>/dev/null; fi
  redis_pid=''
  if [ -n "$postgres_data" ] && [ -e "$postgres_data/data/postmaster.pid" ]; then
    as_postgres "$(postgres_bin)/pg_ctl" -D "$postgres_data/data" -m immediate -w stop >/dev/null 2>&1
  fi
  postgres_data=''
}

trap 'stop_services; rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

command -v node >/dev/null && command -v npm >/dev/null || { echo 'Node 20.20 or newer and npm are needed'; exit 1; }
main
