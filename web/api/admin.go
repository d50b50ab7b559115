package api

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// stats is GET /v1/stats: counters by state, tier and lane out of SQL, and for the key of no project the
// sizes of the index, which are those of all.
func (a *API) stats(ctx context.Context, c *gin.Context, who caller) error {
	counts, err := a.Store.Counts(ctx, who.Project)
	if err != nil {
		return err
	}
	o := jsonObject{[]byte("{")}
	o.open("states")
	for _, state := range store.States {
		// A callback that is being attempted is a scheduled one whose claim is alive: SQL does not count it apart.
		if state != store.Attempting {
			o.integer(string(state), counts.States[state])
		}
	}
	o.close()
	o.key("tiers")
	o.b = append(o.b, '[')
	for i, tier := range slices.Sorted(maps.Keys(counts.Tiers)) {
		o.element(i)
		o.integer("tier", int64(tier))
		o.integer("scheduled", counts.Tiers[tier])
		o.close()
	}
	o.b = append(o.b, ']')
	o.key("lanes")
	o.b = append(o.b, '[')
	for i, lane := range counts.Lanes {
		o.element(i)
		o.str("lane", lane.Lane)
		o.integer("open", lane.Open)
		o.close()
	}
	o.b = append(o.b, ']')
	if who.Root() {
		a.indexStats(ctx, &o)
	}
	o.close()
	a.answer(c, http.StatusOK, o.b)
	return nil
}

// indexStats writes the sizes of the index, or null when it does not answer: it is expendable, SQL's counters are not.
func (a *API) indexStats(ctx context.Context, o *jsonObject) {
	s, err := a.Engine.Stats(ctx)
	if err != nil {
		a.Logger.Warn("index does not say its sizes", "error", err)
		o.orNull("index", "")
		return
	}
	o.open("index")
	o.integer("delayed", s.Delayed)
	o.integer("ready", s.Ready)
	o.integer("leased", s.Leased)
	o.integer("runnable_lanes", s.RunnableLanes)
	o.integer("blocked_lanes", s.BlockedLanes)
	o.integer("locks", s.Locks)
	o.integer("waiters", s.Waiters)
	o.integer("quarantined", s.Quarantined)
	o.instant("head_due_at", s.HeadDue)
	o.close()
}

// element opens the object that is element i of an array.
func (o *jsonObject) element(i int) {
	if i > 0 {
		o.b = append(o.b, ',')
	}
	o.b = append(o.b, '{')
}

// verify is POST /v1/index/verify: what differs between SQL and the index.
func (a *API) verify(ctx context.Context, c *gin.Context, _ caller) error {
	var (
		f   fields
		all bool
	)
	err := readFields(c, true, &f, func(key, value []byte) bool {
		if string(key) != "all" {
			return false
		}
		f.boolean("all", value, &all)
		return true
	})
	if err != nil {
		return err
	}
	look := a.Engine.Verify
	if all {
		look = a.Engine.VerifyAll
	}
	d, err := look(ctx)
	if err != nil {
		return err
	}
	o := jsonObject{[]byte("{")}
	o.boolean("clean", d.Clean())
	o.integer("rows", int64(d.Rows))
	o.integer("items", int64(d.Items))
	o.integer("beyond_horizon", int64(d.Beyond))
	o.integer("missing", int64(d.Missing))
	o.integer("late", int64(d.Late))
	o.integer("extra", int64(d.Extra))
	o.integer("unknown", int64(d.Unknown))
	o.integer("ended", int64(d.Ended))
	o.texts("missing_ids", d.MissingIDs)
	o.texts("late_ids", d.LateIDs)
	o.texts("extra_ids", d.ExtraIDs)
	o.texts("unknown_ids", d.UnknownIDs)
	o.texts("ended_ids", d.EndedIDs)
	o.integer("generation", d.Generation)
	o.integer("index_generation", d.IndexGeneration)
	o.close()
	a.answer(c, http.StatusOK, o.b)
	return nil
}

// texts writes a list of texts; none is an empty list.
func (o *jsonObject) texts(name string, texts []string) {
	o.key(name)
	o.b = append(o.b, '[')
	for i, text := range texts {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = appendString(o.b, text)
	}
	o.b = append(o.b, ']')
}

// rebuild is POST /v1/index/rebuild.
func (a *API) rebuild(ctx context.Context, c *gin.Context, who caller) error {
	var (
		f      fields
		dryRun bool
		reason string
	)
	err := readFields(c, true, &f, func(key, value []byte) bool {
		if string(key) == "dry_run" {
			f.boolean("dry_run", value, &dryRun)
			return true
		}
		return f.reason(key, value, &reason)
	})
	if err != nil {
		return err
	}
	report, err := a.Engine.Rebuild(ctx, dryRun, who.By(reason))
	if err != nil {
		return err
	}
	o := jsonObject{[]byte("{")}
	o.boolean("dry_run", report.DryRun)
	o.integer("open", int64(report.Open))
	o.integer("claimed", int64(report.Claimed))
	o.integer("generation", report.Generation)
	o.duration("took", report.Took.Round(time.Millisecond))
	o.close()
	a.answer(c, http.StatusOK, o.b)
	return nil
}
