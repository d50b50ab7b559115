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
