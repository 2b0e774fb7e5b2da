#!/usr/bin/env bash
# publish.sh FOLDER KEY BUNDLE WORKLIST SKU: merges the shards in FOLDER and signs what is good enough to serve. Fails where
# a problem of the worklist would be missing.
set -euo pipefail
folder=$1
key=$2
bundle=$3
worklist=$4
sku=$5
merged=$folder/merged

# Winners that differ between machines by more than the noise are printed: look at them before publishing.
kernwright cache merge "$folder"/shard-* --cache "$merged"
kernwright cache verify --cache "$merged"
kernwright prewarm "$worklist" --verify --min-match family --sku "$sku" --cache "$merged"
kernwright cache export "$bundle" --sku "$sku" --key "$key" --cache "$merged"
