# Completion for nsqfast's commands in bash; made by `nsqfast-completion bash`.
#   source <(nsqfast-completion bash)

_nsqfast_flags() {
    case $1 in
        nsqfast-bench) echo '--batch-size= --channel= --channels= --connections= --consumers= --count= --defer-ms= --in-air= --json --msg-timeout= --nsqd-tcp-address= --output-buffer-size= --output-buffer-timeout= --rate= --rdy= --requeue-ms= --runfor= --size= --topic= --topics= --version --workers=' ;;
        nsqfast-commitlog) echo '--bodies --data-path= --format= --from= --limit= --seconds= --version' ;;
        nsqfast-nsq-spool) echo '--auth-secret-file= --channel= --checkpoint= --connections= --consumer-opt= --deaths --dedupe-memory= --drain --drain-idle= --drain-timeout= --http-client-connect-timeout= --http-client-request-timeout= --log-level= --log-prefix= --lookupd-http-address= --max-in-flight= --max-spool-bytes= --metrics-address= --min-free-bytes= --msg-timeout= --nsqd-tcp-address= --receiver= --retention= --seal-bytes= --seal-interval= --seal-rows= --segment-format= --spool= --status-interval= --store= --topic= --topic-pattern= --topic-refresh= --until-eof --version' ;;
        nsqfast-nsq-stat) echo '--channel= --count= --http-client-connect-timeout= --http-client-request-timeout= --http-client-tls-cert= --http-client-tls-key= --http-client-tls-root-ca-file= --interval= --json --lookupd-http-address= --nsqd-http-address= --sort= --topic= --version' ;;
        nsqfast-nsq-tail) echo '--auth-secret-file= --channel= --consumer-opt= --format= --lookupd-http-address= --max-in-flight= --n= --nsqd-tcp-address= --on-give-up= --print-topic --topic= --version' ;;
        nsqfast-nsq-to-file) echo '--auth-secret-file= --channel= --compression= --consumer-opt= --datetime-format= --deaths --filename-format= --format= --gzip --gzip-level= --host-identifier= --http-client-connect-timeout= --http-client-request-timeout= --log-level= --log-prefix= --lookupd-http-address= --max-in-flight= --metrics-address= --nsqd-tcp-address= --on-give-up= --output-dir= --recover-host= --rotate-interval= --rotate-size= --skip-empty-files --sync-interval= --topic= --topic-pattern= --topic-refresh= --version --work-dir= --zstd-level=' ;;
        nsqfast-nsq-to-http) echo '--auth-secret-file= --batch= --batch-format= --batch-timeout= --channel= --consumer-opt= --content-type= --get= --header= --http-client-connect-timeout= --http-client-request-timeout= --lookupd-http-address= --max-in-flight= --mode= --n= --nsqd-tcp-address= --on-give-up= --post= --sample= --status-every= --topic= --version' ;;
        nsqfast-nsq-to-nsq) echo '--auth-secret-file= --channel= --consumer-opt= --destination-auth-secret-file= --destination-nsqd-tcp-address= --destination-topic= --lookupd-http-address= --max-in-flight= --mode= --nsqd-tcp-address= --on-give-up= --producer-opt= --require-json-field= --require-json-value= --status-every= --topic= --version --whitelist-json-field=' ;;
        nsqfast-nsqadmin) echo '--acl-http-header= --acl-trusted-cidr= --admin-user= --allow-config-from-cidr= --allowed-host= --audit-file= --auth-file= --auth-secret-file= --base-path= --check --config= --dev-static-dir= --graphite-url= --hash-password --history= --history-file= --history-memory= --http-address= --http-client-connect-timeout= --http-client-request-timeout= --http-client-tls-cert= --http-client-tls-insecure-skip-verify --http-client-tls-key= --http-client-tls-root-ca-file= --log-format= --log-level= --log-prefix= --lookupd-http-address= --mask-json= --max-connections= --no-export --notification-http-endpoint= --nsqd-http-address= --planned-stop= --poll-interval= --problem-backlog-age= --problem-backlog-depth= --problem-backlog-growth= --problem-backlog-time= --problem-dead-letter-suffix= --problem-disk-free= --problem-file= --problem-lookupd-disagree= --problem-no-channel= --problem-no-consumers= --problem-node-down= --problem-not-ready= --problem-paused= --problem-rate= --problem-requeue-critical= --problem-requeue-warning= --problem-stuck= --problem-timeout-critical= --problem-timeout-warning= --problem-webhook= --problem-webhook-form= --problem-window= --proxy-graphite --session-lifetime= --statsd-counter-format= --statsd-gauge-format= --statsd-interval= --statsd-prefix= --tls-cert= --tls-key= --verbose --version --viewer-sees-bodies' ;;
        nsqfast-nsqd) echo '--allowed-host= --auth-http-address= --auth-http-request-method= --broadcast-address= --broadcast-http-port= --broadcast-tcp-port= --check --commit-log-size= --config= --data-path= --deflate --durable= --durable-interval= --e2e-processing-latency-percentile= --e2e-processing-latency-window-time= --enable-experiment= --http-address= --http-admin-address= --http-auth-required --http-client-connect-timeout= --http-client-request-timeout= --http-drain --https-address= --log-format= --log-level= --log-prefix= --lookupd-tcp-address= --lookupd-tls --lookupd-tls-cert= --lookupd-tls-key= --lookupd-tls-root-ca-file= --max-auth-failures= --max-body-size= --max-bytes-per-file= --max-channel-consumers= --max-channels-per-topic= --max-connections= --max-defer= --max-deflate-level= --max-heartbeat-interval= --max-memory= --max-msg-size= --max-msg-timeout= --max-output-buffer-size= --max-output-buffer-timeout= --max-rdy-count= --max-req-timeout= --max-topics= --mem-queue-size= --metrics-exclude-channels --metrics-exclude-ephemeral --metrics-latency-histogram --metrics-max-series= --min-free-disk= --min-output-buffer-timeout= --msg-timeout= --node-id= --output-buffer-timeout= --policy-file= --queue-scan-selection-count= --queue-scan-worker-pool-max= --registration-secret-file= --snappy --statsd-address= --statsd-exclude-ephemeral --statsd-interval= --statsd-mem-stats --statsd-prefix= --statsd-udp-packet-size= --sync-every= --sync-timeout= --tcp-address= --tls-cert= --tls-client-auth-policy= --tls-key= --tls-min-version= --tls-required --tls-root-ca-file= --topology-region= --topology-zone= --verbose --version --worker-id' ;;
        nsqfast-nsqlookupd) echo '--allowed-host= --broadcast-address= --check --config= --http-address= --inactive-producer-timeout= --log-format= --log-level= --log-prefix= --max-channels-per-topic= --max-connections= --max-names-per-peer= --max-topics= --registration-secret-file= --tcp-address= --tls-cert= --tls-client-ca= --tls-key= --tombstone-lifetime= --verbose --version' ;;
        nsqfast-redrive) echo '--cancel --channel= --delete --detach --filter= --limit= --lookupd-http-address= --nsqd-http-address= --rate= --reason= --search= --secret-file= --source-channel= --tls-cert= --tls-key= --tls-root-ca-file= --topic= --version' ;;
        nsqfast-replay) echo '--auth-secret-file= --batch-bytes= --datetime-format= --datetime-zone= --dedupe= --dedupe-memory= --dry-run --filename-format= --format= --mode= --nsqd-tcp-address= --producer-opt= --rate= --retry-for= --since= --state= --topic= --topic-map= --unterminated= --until= --version --window= --work-dir=' ;;
        nsqfast-run) echo '--http-address= --log-level= --reload --version --workers=' ;;
        nsqfast-spark) echo '--assume-time= --assume-topic= --auth-secret-file= --available-now --batch-bytes= --batch-files= --channel= --chart= --checkpoint= --conf= --consumer-opt= --datetime-format= --datetime-zone= --dead-letter= --deaths --dedupe --dry-run --filename-format= --format= --html= --ignore-data-loss --input= --interval= --json-schema= --lookupd-http-address= --master= --max-bad= --max-body-size= --max-bytes-per-trigger= --max-msg-size= --max-rows-per-trigger= --max-spool-bytes= --metrics-address= --metrics-file= --nsqd-tcp-address= --num-partitions= --output= --producer-opt= --rate= --receiver= --restarts= --retention= --retry-for= --salvage --segment-format= --settle= --since= --spark-log-level= --spool= --state= --target-size= --topic= --topic-map= --topic-pattern= --unterminated= --until= --version --work-dir=' ;;
        nsqfast-to-nsq) echo '--auth-secret-file= --deferred= --delimiter= --nsqd-tcp-address= --producer-opt= --rate= --topic=' ;;
    esac
}

_nsqfast_values() {
    case $1 in
        'nsqfast-commitlog data-path') echo @folder ;;
        'nsqfast-commitlog format') echo 'text json jsonl' ;;
        'nsqfast-nsq-spool auth-secret-file') echo @file ;;
        'nsqfast-nsq-spool checkpoint') echo @folder ;;
        'nsqfast-nsq-spool log-level') echo 'debug info warn error fatal' ;;
        'nsqfast-nsq-spool segment-format') echo 'arrow parquet' ;;
        'nsqfast-nsq-spool spool') echo @folder ;;
        'nsqfast-nsq-stat http-client-tls-cert') echo @file ;;
        'nsqfast-nsq-stat http-client-tls-key') echo @file ;;
        'nsqfast-nsq-stat http-client-tls-root-ca-file') echo @file ;;
        'nsqfast-nsq-stat sort') echo 'topic channel ingress egress total mem disk inflt def req t-o msgs clients' ;;
        'nsqfast-nsq-tail auth-secret-file') echo @file ;;
        'nsqfast-nsq-tail format') echo 'text json hex' ;;
        'nsqfast-nsq-tail on-give-up') echo 'finish requeue exit topic:' ;;
        'nsqfast-nsq-to-file auth-secret-file') echo @file ;;
        'nsqfast-nsq-to-file compression') echo 'none gzip zstd' ;;
        'nsqfast-nsq-to-file format') echo 'lines jsonl parquet arrow' ;;
        'nsqfast-nsq-to-file log-level') echo 'debug info warn error fatal' ;;
        'nsqfast-nsq-to-file on-give-up') echo 'finish requeue exit topic:' ;;
        'nsqfast-nsq-to-file output-dir') echo @folder ;;
        'nsqfast-nsq-to-file work-dir') echo @folder ;;
        'nsqfast-nsq-to-http auth-secret-file') echo @file ;;
        'nsqfast-nsq-to-http batch-format') echo 'json-lines length-prefixed' ;;
        'nsqfast-nsq-to-http mode') echo 'round-robin hostpool epsilon-greedy' ;;
        'nsqfast-nsq-to-http on-give-up') echo 'finish requeue exit topic:' ;;
        'nsqfast-nsq-to-nsq auth-secret-file') echo @file ;;
        'nsqfast-nsq-to-nsq destination-auth-secret-file') echo @file ;;
        'nsqfast-nsq-to-nsq mode') echo 'round-robin hostpool epsilon-greedy' ;;
        'nsqfast-nsq-to-nsq on-give-up') echo 'finish requeue exit topic:' ;;
        'nsqfast-nsqadmin audit-file') echo @file ;;
        'nsqfast-nsqadmin auth-file') echo @file ;;
        'nsqfast-nsqadmin auth-secret-file') echo @file ;;
        'nsqfast-nsqadmin base-path') echo @folder ;;
        'nsqfast-nsqadmin config') echo @file ;;
        'nsqfast-nsqadmin dev-static-dir') echo @folder ;;
        'nsqfast-nsqadmin history-file') echo @file ;;
        'nsqfast-nsqadmin http-client-tls-cert') echo @file ;;
        'nsqfast-nsqadmin http-client-tls-key') echo @file ;;
        'nsqfast-nsqadmin http-client-tls-root-ca-file') echo @file ;;
        'nsqfast-nsqadmin log-format') echo 'text json' ;;
        'nsqfast-nsqadmin log-level') echo 'debug info warn error fatal' ;;
        'nsqfast-nsqadmin problem-file') echo @file ;;
        'nsqfast-nsqadmin problem-webhook-form') echo 'nsqadmin alertmanager slack' ;;
        'nsqfast-nsqadmin tls-cert') echo @file ;;
        'nsqfast-nsqadmin tls-key') echo @file ;;
        'nsqfast-nsqd config') echo @file ;;
        'nsqfast-nsqd data-path') echo @folder ;;
        'nsqfast-nsqd durable') echo 'off interval always' ;;
        'nsqfast-nsqd log-format') echo 'text json' ;;
        'nsqfast-nsqd log-level') echo 'debug info warn error fatal' ;;
        'nsqfast-nsqd lookupd-tls-cert') echo @file ;;
        'nsqfast-nsqd lookupd-tls-key') echo @file ;;
        'nsqfast-nsqd lookupd-tls-root-ca-file') echo @file ;;
        'nsqfast-nsqd policy-file') echo @file ;;
        'nsqfast-nsqd registration-secret-file') echo @file ;;
        'nsqfast-nsqd tls-cert') echo @file ;;
        'nsqfast-nsqd tls-key') echo @file ;;
        'nsqfast-nsqd tls-min-version') echo 'tls1.0 tls1.1 tls1.2 tls1.3 ' ;;
        'nsqfast-nsqd tls-root-ca-file') echo @file ;;
        'nsqfast-nsqlookupd config') echo @file ;;
        'nsqfast-nsqlookupd log-format') echo 'text json' ;;
        'nsqfast-nsqlookupd log-level') echo 'debug info warn error fatal' ;;
        'nsqfast-nsqlookupd registration-secret-file') echo @file ;;
        'nsqfast-nsqlookupd tls-cert') echo @file ;;
        'nsqfast-nsqlookupd tls-key') echo @file ;;
        'nsqfast-redrive secret-file') echo @file ;;
        'nsqfast-redrive tls-cert') echo @file ;;
        'nsqfast-redrive tls-key') echo @file ;;
        'nsqfast-redrive tls-root-ca-file') echo @file ;;
        'nsqfast-replay auth-secret-file') echo @file ;;
        'nsqfast-replay dedupe') echo 'id body none' ;;
        'nsqfast-replay format') echo 'auto lines jsonl parquet arrow' ;;
        'nsqfast-replay mode') echo 'failover spread' ;;
        'nsqfast-replay state') echo @file ;;
        'nsqfast-replay unterminated') echo 'skip publish' ;;
        'nsqfast-replay work-dir') echo @folder ;;
        'nsqfast-run log-level') echo 'debug info warn error fatal' ;;
        'nsqfast-spark auth-secret-file') echo @file ;;
        'nsqfast-spark chart') echo @file ;;
        'nsqfast-spark checkpoint') echo @folder ;;
        'nsqfast-spark dead-letter') echo @folder ;;
        'nsqfast-spark format') echo 'parquet delta' ;;
        'nsqfast-spark html') echo @file ;;
        'nsqfast-spark input') echo @folder ;;
        'nsqfast-spark json-schema') echo @file ;;
        'nsqfast-spark metrics-file') echo @file ;;
        'nsqfast-spark output') echo @folder ;;
        'nsqfast-spark receiver') echo 'embedded external' ;;
        'nsqfast-spark segment-format') echo 'arrow parquet' ;;
        'nsqfast-spark spark-log-level') echo 'all trace debug info warn error fatal off' ;;
        'nsqfast-spark spool') echo @folder ;;
        'nsqfast-spark state') echo @file ;;
        'nsqfast-spark unterminated') echo 'skip keep' ;;
        'nsqfast-spark work-dir') echo @folder ;;
        'nsqfast-to-nsq auth-secret-file') echo @file ;;
    esac
}

_nsqfast_words() {
    case $1 in
        nsqfast-bench) echo 'pub sub pubsub latency' ;;
        nsqfast-commitlog) echo 'probe check dump' ;;
        nsqfast-replay) echo @file ;;
        nsqfast-spark) echo 'ingest load-archives compact replay stats' ;;
    esac
}

_nsqfast_complete() {
    local program=${1##*/} current=$2 previous=$3 flag= values
    # Bash takes the equals sign for a word of its own.
    if [[ $current == "=" ]]; then
        flag=$previous current=
    elif [[ $previous == "=" ]]; then
        flag=${COMP_WORDS[COMP_CWORD - 2]}
    elif [[ $previous == -* ]]; then
        local bare=${previous#-}
        [[ " $(_nsqfast_flags "$program") " == *" --${bare#-}= "* ]] && flag=$previous
    fi
    if [[ -n $flag ]]; then
        flag=${flag#-}
        values=$(_nsqfast_values "$program ${flag#-}")
        case $values in
            @file) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
            @folder) mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
            *) mapfile -t COMPREPLY < <(compgen -W "$values" -- "$current") ;;
        esac
        return
    fi
    if [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_nsqfast_flags "$program")" -- "$current")
        [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
        return
    fi
    values=$(_nsqfast_words "$program")
    if [[ $values == @file ]]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
    else
        mapfile -t COMPREPLY < <(compgen -W "$values" -- "$current")
    fi
}

complete -F _nsqfast_complete nsqfast-bench nsqfast-commitlog nsqfast-nsq-spool nsqfast-nsq-stat nsqfast-nsq-tail nsqfast-nsq-to-file nsqfast-nsq-to-http nsqfast-nsq-to-nsq nsqfast-nsqadmin nsqfast-nsqd nsqfast-nsqlookupd nsqfast-redrive nsqfast-replay nsqfast-run nsqfast-spark nsqfast-to-nsq
