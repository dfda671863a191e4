# round-trip.sh TEMPORARY MODEL...: prints each model at two stages, parses and prints that, and
# compares.
temporary=$1
shift
texts=0
different=0
for model in "$@"; do
  for stage in import lowered; do
    texts=$((texts + 1))
    gpt2c-opt "$model" --compile-to=$stage --verify-each --quiet -o "$temporary.1" &&
      gpt2c-opt "$temporary.1" -o "$temporary.2" && cmp "$temporary.1" "$temporary.2" || {
      echo "differs: $model $stage"
      different=$((different + 1))
    }
  done
done
echo "$texts texts, $different differ"
