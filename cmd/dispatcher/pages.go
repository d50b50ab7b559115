package main

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
	"github.com/seed-ff5a32d8/dispatcher/web/ui"
)

// openPages makes the admin pages.
func (srv *server) openPages(db *sqlstore.DB, guesses *query.Guesses) (*ui.UI, error) {
	e, s := srv.engine, srv.s
	return ui.New(ui.Options{
		Clock: e, Sessions: db, Keys: e, Projects: db, Overview: db,
		Callbacks:    shownDB{db, store.PanGuard(s.PanGuard)},
		CallbackActs: e, Endpoints: db, EndpointActs: e, Lanes: e,
		Polls: e, Schedules: e, ScheduleActs: e, Redrives: db, RedriveActs: e, Dead: db, Books: db, Audit: db, Index: e, System: e,
		Schema: schema{db}, AdminKey: s.AdminKey, Guesses: guesses, PublicURL: s.PublicURL,
		Version: programVersion(), Logger: srv.log,
	})
}

// A schema says how far the database's schema is.
type schema struct{ db *sqlstore.DB }

// Migrations lists those that the program knows.
func (s schema) Migrations(ctx context.Context) ([]ui.Migration, error) {
	status, err := sqlstore.MigrationStatus(ctx, s.db)
	if err != nil {
		return nil, err
	}
	list := make([]ui.Migration, len(status))
	for i, m := range status {
		list[i] = ui.Migration{Version: m.Version, Name: m.Name, AppliedAt: m.AppliedAt}
	}
	return list, nil
}
