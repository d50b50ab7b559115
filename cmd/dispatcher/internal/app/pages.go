package app

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
	"github.com/seed-ff5a32d8/dispatcher/web/ui"
)

// openPages makes the admin pages.
func (srv *App) openPages(db *sqlstore.DB, guesses *query.Guesses) (*ui.UI, error) {
	e, s := srv.Engine, srv.Settings
	return ui.New(ui.Options{
		Engine: e, Store: pagesDB{shownDB{db, store.PanGuard(s.PanGuard)}}, AdminKey: s.AdminKey, Guesses: guesses,
		PublicURL: s.PublicURL, Version: srv.version, Logger: srv.Log,
	})
}

// A pagesDB is the database as the pages read it.
type pagesDB struct{ shownDB }

// Migrations lists those that the program knows.
func (db pagesDB) Migrations(ctx context.Context) ([]ui.Migration, error) {
	status, err := sqlstore.MigrationStatus(ctx, db.DB)
	if err != nil {
		return nil, err
	}
	list := make([]ui.Migration, len(status))
	for i, m := range status {
		list[i] = ui.Migration{Version: m.Version, Name: m.Name, AppliedAt: m.AppliedAt}
	}
	return list, nil
}

// A shownDB is the database as the API and the pages read it, with card numbers masked if the settings say
// so. What is sent is read from the database itself.
type shownDB struct {
	*sqlstore.DB
	guard store.PanGuard
}

// Payload returns a body as it may be shown.
func (db shownDB) Payload(ctx context.Context, project, id string) (store.Payload, error) {
	p, err := db.DB.Payload(ctx, project, id)
	if err == nil && db.guard.Masks() {
		p.Body, p.Masked = store.MaskPAN(p.Body)
	}
	return p, err
}

// Attempts returns attempts with answers as they may be shown.
func (db shownDB) Attempts(
	ctx context.Context, project, id string, before, limit int,
) ([]store.Attempt, error) {
	attempts, err := db.DB.Attempts(ctx, project, id, before, limit)
	if err == nil && db.guard.Masks() {
		store.MaskAttempts(attempts)
	}
	return attempts, err
}

// Attempt returns an attempt with its answer as it may be shown.
func (db shownDB) Attempt(ctx context.Context, project, id string, number int) (store.Attempt, error) {
	a, err := db.DB.Attempt(ctx, project, id, number)
	if err != nil || !db.guard.Masks() {
		return a, err
	}
	one := []store.Attempt{a}
	store.MaskAttempts(one)
	return one[0], nil
}
