package redisq

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// lookAround has the client of a Cluster ask again who has which slots, after a call that failed. A dead master does not say
// that its replica took over, and the client by itself asks only every ten seconds: so long its shards would be late beyond the
// failover. The client keeps a pause between two such questions, and does not wait for the answer here.
func (ix *Index) lookAround(ctx context.Context) {
	if cluster, ok := ix.client.(*redis.ClusterClient); ok {
		cluster.ReloadState(ctx)
	}
}
