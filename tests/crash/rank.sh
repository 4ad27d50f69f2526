# One rank of a job, as a witness: it records that it runs, and holds a lock while it does.
# $WITNESS is the folder of the records, $DO the behaviour, $EXIT_CODE the exit code.
RANK=${RANK:-$PET_NODE_RANK} # which torchrun would set
exec 9>>"$WITNESS/job-$JOB_ID-rank-$RANK"
flock --nonblock 9 || echo "job $JOB_ID rank $RANK" >>"$WITNESS/together"
again=
if [ "$DO" = "lose a worker" ]; then
    ! grep -qx "$JOB_ID $JOB_ATTEMPT $RANK" "$WITNESS/starts" || again=" again"
fi
echo "$JOB_ID $JOB_ATTEMPT $RANK$again" >>"$WITNESS/starts"
echo "rank $RANK of job $JOB_ID"
echo '::progress:: {"step": 1, "total_steps": 2}'
case $DO in
hold) sleep 1000000 ;;
"hold three times") [ "$JOB_ATTEMPT" -gt 3 ] || sleep 1000000 ;;
"die once") [ "$JOB_ATTEMPT" -gt 1 ] || kill -KILL $$ ;;
"lose a worker")
    if [ "$RANK" = 1 ]; then
        [ "$again" ] || kill -KILL $$
    else
        until grep -qx "$JOB_ID $JOB_ATTEMPT 1 again" "$WITNESS/starts"; do sleep 0.05; done
    fi
    ;;
esac
exit "${EXIT_CODE:-0}"
