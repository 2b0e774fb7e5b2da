#!/usr/bin/env bash
# tune.sh KERNWRIGHT: tunes bench/worklists/examples.json; without a GPU, predicts for an H200.
set -euo pipefail
kernwright=$1
worklist=$(dirname "$0")/../../bench/worklists/examples.json
if "$kernwright" doctor --json | python3 -c '
import json, sys
sys.exit(0 if json.load(sys.stdin).get("device") else 1)'; then
  exec "$kernwright" sweep "$worklist"
fi
echo "no GPU here: predicting for h200, nothing is measured"
exec "$kernwright" sweep "$worklist" --sku h200
