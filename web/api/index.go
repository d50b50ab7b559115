package api

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// stats handles GET /v1/stats: counters by state, tier and lane from SQL. Only the admin key of the settings
// also gets the sizes of the index, because they cover all projects.
func (a *API) stats(ctx context.Context, c *gin.Context, who caller) error {
	counts, err := a.Store.Counts(ctx, who.Project)
	if err != nil {
		return err
	}
	out := client.Stats{
		States: make(map[client.State]int64, len(store.States)),
		Lanes:  each(counts.Lanes, func(l *store.LaneCount) client.LaneStats { return client.LaneStats(*l) }),
	}
	for _, state := range store.States {
		// An attempting callback is a scheduled row with a valid claim. SQL counts it as scheduled.
		if state != store.Attempting {
			out.States[client.State(state)] = counts.States[state]
		}
	}
	for _, tier := range slices.Sorted(maps.Keys(counts.Tiers)) {
		out.Tiers = append(out.Tiers, client.TierStats{Tier: tier, Scheduled: counts.Tiers[tier]})
	}
	if who.Root() {
		out.Index = a.indexStats(ctx)
	}
	return a.respond(c, http.StatusOK, out)
}

// indexStats returns the sizes of the index. They are null if the index does not respond: the counters from
// SQL are useful without them.
func (a *API) indexStats(ctx context.Context) client.Optional[client.IndexStats] {
	s, err := a.Engine.Stats(ctx)
	if err != nil {
		a.Logger.Warn("index sizes unavailable", "error", err)
		return client.Null[client.IndexStats]()
	}
	return client.Set(client.IndexStats{
		Delayed: s.Delayed, Ready: s.Ready, Leased: s.Leased, RunnableLanes: s.RunnableLanes,
		BlockedLanes: s.BlockedLanes, Locks: s.Locks, Waiters: s.Waiters, Quarantined: s.Quarantined,
		HeadDueAt: moment(s.HeadDue),
	})
}

// verify handles POST /v1/index/verify: the differences between SQL and the index.
func (a *API) verify(ctx context.Context, c *gin.Context, _ caller) error {
	r, err := readAll[client.VerifyRequest](c, true)
	if err != nil {
		return err
	}
	verify := a.Engine.Verify
	if r.All {
		verify = a.Engine.VerifyAll
	}
	return reply(a, c, http.StatusOK, func(d *index.Drift) client.Drift {
		return client.Drift{
			Clean: d.Clean(), Rows: d.Rows, Items: d.Items, BeyondHorizon: d.Beyond,
			Missing: d.Missing, Late: d.Late, Extra: d.Extra, Unknown: d.Unknown, Ended: d.Ended,
			MissingIDs: d.MissingIDs, LateIDs: d.LateIDs, ExtraIDs: d.ExtraIDs, UnknownIDs: d.UnknownIDs,
			EndedIDs: d.EndedIDs, Generation: d.Generation, IndexGeneration: d.IndexGeneration,
		}
	})(verify(ctx))
}

// rebuild handles POST /v1/index/rebuild.
func (a *API) rebuild(ctx context.Context, c *gin.Context, who caller) error {
	r, err := readAll[client.RebuildRequest](c, true)
	if err != nil {
		return err
	}
	return reply(a, c, http.StatusOK, func(r *index.RebuildReport) client.Rebuild {
		return client.Rebuild{
			DryRun: r.DryRun, Open: r.Open, Claimed: r.Claimed, Generation: r.Generation,
			Took: duration(r.Took.Round(time.Millisecond)),
		}
	})(a.Engine.Rebuild(ctx, r.DryRun, who.By(r.Reason)))
}
