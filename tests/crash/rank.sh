# One rank of a job, as a witness: it writes down that it runs, and holds a lock for as long as it does.
# $WITNESS is the folder for that; $DO is what the rank does, $EXIT_CODE how it ends.
exec 9>>"$WITNESS/job-$JOB_ID-rank-$RANK"
flock --nonblock 9 || echo "job $JOB_ID rank $RANK" >>"$WITNESS/together"
echo "$JOB_ID $JOB_ATTEMPT $RANK" >>"$WITNESS/starts"
echo "rank $RANK of job $JOB_ID"
echo '::progress:: {"step": 1, "total_steps": 2}'
case $DO in
hold) sleep 1000000 ;;
"die once") [ "$JOB_ATTEMPT" -gt 1 ] || kill -KILL $$ ;;
esac
exit "${EXIT_CODE:-0}"
