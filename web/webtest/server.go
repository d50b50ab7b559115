// Package webtest starts a complete server in the process of a test: the public listener with the API, an
// engine, SQLite and an index in memory. Its callbacks go to a handler and not to the network. Only tests
// import it.
package webtest

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore"
	"github.com/seed-ff5a32d8/dispatcher/web"
	"github.com/seed-ff5a32d8/dispatcher/web/api"
	"github.com/seed-ff5a32d8/dispatcher/web/ui"
)

// AdminKey is the admin key of every Server.
const AdminKey = "dk_0123456789abcdefghijklmn"

// startTimeout limits the start: the migrations, and the filling of the index.
const startTimeout = time.Minute

// A Server is a running server.
type Server struct {
	// URL is the base URL of the API.
	URL string

	dir   string
	db    *sqlstore.DB
	stop  context.CancelFunc
	ended chan error // gets one error for each of the two goroutines
	runs  int
}

// Start starts a server. Its callbacks go to the receivers, which see the whole URL of each request. Close
// ends it.
func Start(receivers http.Handler) (_ *Server, err error) {
	s := &Server{ended: make(chan error, 2), stop: func() {}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start a server: %w", err), s.Close())
		}
	}()
	s.dir, err = os.MkdirTemp("", "webtest-*")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	s.db, err = sqlstore.Open(ctx, sqlstore.Options{URL: "sqlite:" + filepath.Join(s.dir, "d.db")})
	if err != nil {
		return nil, err
	}
	if err := sqlstore.Migrate(ctx, s.db); err != nil {
		return nil, err
	}
	return s, s.serve(ctx, receivers)
}

// serve starts the engine and the listeners, and waits until the engine is ready.
func (s *Server) serve(ctx context.Context, receivers http.Handler) error {
	master := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, secret.MasterKeyBytes))
	ring, err := secret.NewKeyring([]string{master})
	if err != nil {
		return err
	}
	sender, err := outbound.New(outbound.Options{Transport: testserver.InProcess{Handler: receivers}})
	if err != nil {
		return err
	}
	engine, err := dispatch.New(dispatch.Options{
		Store: s.db, Schedule: memq.New(memq.Options{}), Sender: sender, Keyring: ring, Embedded: true,
		ReadTemplate: api.ReadTemplate,
	})
	if err != nil {
		return err
	}
	reports, err := ui.ReportTexts()
	if err != nil {
		return err
	}
	face, err := api.New(api.Options{
		Engine: engine, Store: s.db, AdminKey: AdminKey, ReportTexts: reports,
	})
	if err != nil {
		return err
	}
	server, err := web.New(web.Options{
		Listen: "127.0.0.1:0", OpsListen: "127.0.0.1:0", API: face, Health: engine,
	})
	if err != nil {
		return err
	}
	if err := server.Listen(); err != nil {
		return err
	}
	s.URL = "http://" + server.Addr().String()
	running, stop := context.WithCancel(context.Background())
	s.stop = stop
	for _, run := range []func(context.Context) error{engine.Run, server.Run} {
		s.runs++
		go func() { s.ended <- run(running) }()
	}
	for len(engine.Health(ctx).Degraded) > 0 {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the engine is not ready: %w", ctx.Err())
		}
	}
	return nil
}

// Close ends the server and removes its files.
func (s *Server) Close() error {
	s.stop()
	var errs []error
	for range s.runs {
		errs = append(errs, <-s.ended)
	}
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

// ReportTexts returns the writers of delivery reports that the server has, for tests of the API alone.
func ReportTexts() (map[string]func(*control.Report) []byte, error) { return ui.ReportTexts() }
