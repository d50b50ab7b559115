package sqlstore

import (
	"context"
	"strconv"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

var (
	relayColumns = sqldb.Named[store.RelaySource](`project name origin holder held_by held_until created_at
		reported_at lag_ms=ReportLagMs waiting=ReportWaiting refused_rows=ReportRefusedRows
		rows_per_second=ReportRowsPerSecond error=ReportError act_id act_action act_row_id act_code act_since
		act_dry_run act_rate act_requested_at act_requested_by act_state act_matched act_accepted
		act_replayed act_refused act_dropped act_error`)
	relayReport = sqldb.Named[store.RelayReport](`lag_ms waiting refused_rows rows_per_second error`)
	// relayAct is what a person asks for, relayProgress how far the act is.
	relayAct = sqldb.Named[store.RelayAct](`act_id=ID act_action=Action act_row_id=RowID act_code=Code
		act_since=Since act_dry_run=DryRun act_rate=Rate act_requested_at=RequestedAt
		act_requested_by=RequestedBy`)
	relayProgress = sqldb.Named[store.RelayAct](`act_state=State act_matched=Matched act_accepted=Accepted
		act_replayed=Replayed act_refused=Refused act_dropped=Dropped act_error=Error`)
)

// relayWithRefusals are all columns of a source.
func relayWithRefusals(s *store.RelaySource) sqldb.Columns {
	return append(relayColumns(s), col("refusals", sqldb.JSON(&s.Report.Refusals)))
}

// relayFree is the condition under which a relay may take the lease of a source: its own, or one that
// store.RelaySource.Held calls not held.
const relayFree = `(holder = ? AND held_by = ? OR holder = '' OR held_until <= ? OR held_until > ?)`

// relayActOpen is the condition that a source has an act which is not finished.
const relayActOpen = `act_state IN ('waiting', 'running')`

// HoldRelay takes or renews the lease of a source until now + store.RelayLease, and stores the report and the
// progress of its holder. The name of a new source stands for h.Origin from then on. HoldRelay returns the
// source without its refusals. Its errors are store.ErrRelayHeld, store.ErrRelayOrigin and
// store.ErrTooManySources; then nothing changes.
//
// A lease saves double work and is no guard: rows are idempotent.
func (db *DB) HoldRelay(ctx context.Context, project, name string, h store.RelayHold,
	now int64) (store.RelaySource, error) {
	return changed(ctx, db.change, "hold relay source "+name, func(t *tx) (store.RelaySource, error) {
		renewed, found, err := t.renewRelay(project, name, &h, now)
		if err != nil || found {
			return renewed, err
		}
		there, found, err := t.findRelay(project, name)
		switch {
		case err != nil:
			return there, err
		case found && there.Origin != h.Origin:
			return there, store.ErrRelayOrigin
		case found && there.Held(now):
			return there, store.ErrRelayHeld
		case !found:
			if err := t.addRelay(project, name, &h, now); err != nil {
				return there, err
			}
		}
		renewed, _, err = t.renewRelay(project, name, &h, now)
		return renewed, err
	})
}

// renewRelay is a holder's renewal: one statement, and an entry in the audit if it ends the act. It finds no
// row if the source is unknown, held by another relay, or another table.
func (t *tx) renewRelay(project, name string, h *store.RelayHold,
	now int64) (s store.RelaySource, found bool, err error) {
	ends, err := t.endsAct(project, name, &h.Progress)
	if err != nil {
		return s, false, err
	}
	holder, by, until := h.Holder, h.By.ID, now+store.RelayLease
	if h.Release {
		holder, by, until = "", "", 0
	}
	var q query
	q.add("UPDATE relay_sources SET holder = ?, held_by = ?, held_until = ?", holder, by, until)
	if h.Report != nil {
		q.add(", reported_at = ?", now)
		for _, c := range relayReport(h.Report) {
			q.add(", "+c.Name+" = ?", c.At)
		}
		if !h.KeepRefusals {
			q.add(", refusals = ?", sqldb.JSON(&h.Report.Refusals))
		}
	}
	if h.Progress.ID != "" {
		for _, c := range relayProgress(&h.Progress) {
			q.add(", "+c.Name+" = CASE WHEN act_id = ? AND "+relayActOpen+" THEN ? ELSE "+c.Name+" END",
				h.Progress.ID, c.At)
		}
	}
	q.add("\nWHERE project = ? AND name = ? AND origin = ? AND "+relayFree, project, name, h.Origin,
		h.Holder, h.By.ID, now, now+store.MaxRelayLease)
	renewed, err := sqldb.Returning(t, relayColumns, q.text, q.args...)
	if err != nil || len(renewed) == 0 {
		return s, false, err
	}
	s = renewed[0]
	if ends {
		err = t.auditChange(project, "relay.end", relayObject(name), now, h.By,
			auditDiff{after: endedAct(&s.Act)}, nil)
	}
	return s, true, err
}

// endsAct reports whether progress ends the open act of a source. It then locks the source.
func (t *tx) endsAct(project, name string, progress *store.RelayAct) (bool, error) {
	if progress.ID == "" || progress.Open() {
		return false, nil
	}
	s, found, err := t.findRelay(project, name)
	return found && s.Act.ID == progress.ID && s.Act.Open(), err
}

// addRelay inserts a source that no relay holds. The lock of the project makes parallel calls follow each
// other, so that two can use neither the last free place nor one table.
func (t *tx) addRelay(project, name string, h *store.RelayHold, now int64) error {
	if err := t.lockProjectRow(project); err != nil {
		return err
	}
	other, found, err := sqldb.Value[string](t, `SELECT name FROM relay_sources
		WHERE project = $1 AND origin = $2 AND name <> $3 LIMIT 1`, project, h.Origin, name)
	switch {
	case err != nil:
		return named("find the name of a table", err)
	case found:
		return &store.RelayNamedError{Name: other}
	}
	n, _, err := sqldb.Value[int](t, `SELECT COUNT(*) FROM relay_sources WHERE project = $1`, project)
	if err != nil {
		return named("count relay sources", err)
	}
	if n >= store.MaxRelaySources {
		return store.ErrTooManySources
	}
	_, err = t.Exec(`INSERT INTO relay_sources
			(project, name, origin, holder, held_by, held_until, created_at)
		VALUES ($1, $2, $3, '', '', 0, $4)`, project, name, h.Origin, now)
	if err != nil {
		return sqldb.Overtaken("insert relay source", err)
	}
	return t.auditChange(project, "relay.create", relayObject(name), now, h.By,
		auditDiff{after: fields{"origin": h.Origin}}, nil)
}

// RelaySources returns the sources of a project by name, without their refusals.
func (db *DB) RelaySources(ctx context.Context, project string) ([]store.RelaySource, error) {
	return sqldb.Select(db.read(ctx, "read relay sources"), relayColumns, `FROM relay_sources
		WHERE project = $1 ORDER BY name LIMIT `+strconv.Itoa(store.MaxRelaySources), project)
}

// RelaySource returns a source with its refusals, or store.ErrNotFound.
func (db *DB) RelaySource(ctx context.Context, project, name string) (store.RelaySource, error) {
	return sqldb.Get(db.read(ctx, "read relay sources"), "relay source "+name, relayWithRefusals,
		`FROM relay_sources WHERE project = $1 AND name = $2`, project, name)
}

// findRelay reads a source, if there is one, and locks its row until the transaction ends.
func (t *tx) findRelay(project, name string) (store.RelaySource, bool, error) {
	return sqldb.One(t, relayColumns, `FROM relay_sources WHERE project = $1 AND name = $2 FOR UPDATE`,
		project, name)
}

// lockRelay is findRelay for a source that must be there. It returns store.ErrNotFound.
func (t *tx) lockRelay(project, name string) (store.RelaySource, error) {
	s, found, err := t.findRelay(project, name)
	if err == nil && !found {
		err = store.ErrNotFound
	}
	return s, err
}

// relayObject names a source in the audit.
func relayObject(name string) string { return "relay/" + name }

// ActOnRelay stores an act for the relay of a source and returns the source. Its errors are store.ErrNotFound
// and store.ErrRelayActing.
func (db *DB) ActOnRelay(ctx context.Context, project, name string, act store.RelayAct, now int64,
	by store.Actor) (store.RelaySource, error) {
	return changed(ctx, db.change, "act on relay source "+name, func(t *tx) (store.RelaySource, error) {
		s, err := t.lockRelay(project, name)
		switch {
		case err != nil:
			return s, err
		case t.MayBeCommitted && s.Act.ID == act.ID:
			return s, nil // an earlier try was committed, and its reply was lost
		case s.Act.Open():
			return s, store.ErrRelayActing
		}
		s.Act = store.RelayAct{
			ID: act.ID, Action: act.Action, RowID: act.RowID, Code: act.Code, Since: act.Since,
			DryRun: act.DryRun, Rate: act.Rate, RequestedAt: now, RequestedBy: by.Name,
			State: store.RelayActWaiting,
		}
		columns := append(relayAct(&s.Act), relayProgress(&s.Act)...)
		if _, err := columns.Update(t.Tx, "relay_sources", `project = $1 AND name = $2`, project,
			name); err != nil {
			return s, named("write act", err)
		}
		return s, t.auditChange(project, "relay."+string(act.Action), relayObject(name), now, by,
			auditDiff{after: printedAct(&s.Act)}, nil)
	})
}

// printedAct is what the audit says about an act.
func printedAct(a *store.RelayAct) fields {
	if a.Action == store.RelayReplay {
		return fields{"act": a.ID, "since": printedTime(a.Since), "dry_run": a.DryRun, "rate": a.Rate}
	}
	return fields{"act": a.ID, "row_id": a.RowID, "code": a.Code}
}

// endedAct is what the audit says about an act that has ended.
func endedAct(a *store.RelayAct) fields {
	f := fields{"act": a.ID, "action": string(a.Action), "state": string(a.State), "error": a.Error}
	for name, n := range map[string]int{"matched": a.Matched, "accepted": a.Accepted, "replayed": a.Replayed,
		"refused": a.Refused, "dropped": a.Dropped} {
		f[name] = n
	}
	return f
}

// CancelRelayAct ends the open act of a source, and returns the source. Its relay stops at the next renewal.
// An act that has ended stays as it is. The error is store.ErrNotFound.
func (db *DB) CancelRelayAct(ctx context.Context, project, name string, now int64,
	by store.Actor) (store.RelaySource, error) {
	return changed(ctx, db.change, "cancel act on relay source "+name,
		func(t *tx) (store.RelaySource, error) {
			s, err := t.lockRelay(project, name)
			if err != nil || !s.Act.Open() {
				return s, err
			}
			s.Act.State = store.RelayActCanceled
			if _, err := t.Exec(`UPDATE relay_sources SET act_state = $1 WHERE project = $2 AND name = $3`,
				s.Act.State, project, name); err != nil {
				return s, err
			}
			return s, t.auditChange(project, "relay.cancel", relayObject(name), now, by,
				auditDiff{after: endedAct(&s.Act)}, nil)
		})
}

// ForgetRelay deletes a source and returns it as it was. Its errors are store.ErrNotFound and
// store.ErrRelayHeld.
func (db *DB) ForgetRelay(ctx context.Context, project, name string, now int64,
	by store.Actor) (store.RelaySource, error) {
	return changed(ctx, db.change, "forget relay source "+name, func(t *tx) (store.RelaySource, error) {
		s, err := t.lockRelay(project, name)
		switch {
		case err != nil:
			return s, err
		case s.Held(now):
			return s, store.ErrRelayHeld
		}
		if _, err := t.Exec(`DELETE FROM relay_sources WHERE project = $1 AND name = $2`, project,
			name); err != nil {
			return s, err
		}
		before := fields{"origin": s.Origin}
		if act := s.Act; act.Open() {
			act.State = store.RelayActCanceled
			before["act"] = endedAct(&act)
		}
		return s, t.auditChange(project, "relay.forget", relayObject(name), now, by,
			auditDiff{before: before}, nil)
	})
}
