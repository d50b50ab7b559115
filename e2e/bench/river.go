package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

const (
	// riverConns is the size of River's pools: the default of the dispatcher's.
	riverConns = 20
	// riverChunk is how many callbacks one call puts in.
	riverChunk = 1000
)

// riverArgs are what River keeps of a callback. It keeps JSON only.
type riverArgs struct {
	Number  int    `json:"number"`
	Payload string `json:"payload"`
}

func (riverArgs) Kind() string { return "callback" }

func newRiverArgs(n int) riverArgs {
	payload := newPayload()
	setNumber(payload, n)
	return riverArgs{Number: n, Payload: string(payload)}
}

// riverQueue is River as its producer sees it.
type riverQueue struct {
	url    string
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
}

func newRiver(r *run) queue {
	url := testserver.NewPostgres(r).Database(r)
	pool, err := riverPool(r.Context(), url)
	r.check("connect River", err)
	r.Cleanup(pool.Close)
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: riverLogger()})
	r.check("migrate River", err)
	_, err = migrator.Migrate(r.Context(), rivermigrate.DirectionUp, nil)
	r.check("migrate River", err)
	client, err := river.NewClient(driver, &river.Config{Logger: riverLogger()})
	r.check("River", err)
	return riverQueue{url, pool, client}
}

func riverPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = riverConns
	return pgxpool.NewWithConfig(ctx, cfg)
}

// riverLogger reports errors only.
func riverLogger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

func (q riverQueue) worker() (role, store string) { return roleRiver, q.url }

func (q riverQueue) fill(ctx context.Context, n int) error {
	return parallel(2, (n+riverChunk-1)/riverChunk, func() func(int) error {
		return func(chunk int) error {
			var some []river.InsertManyParams
			for i := chunk * riverChunk; i < min(n, (chunk+1)*riverChunk); i++ {
				some = append(some, river.InsertManyParams{Args: newRiverArgs(i)})
			}
			_, err := q.client.InsertManyFast(ctx, some)
			return err
		}
	})
}

func (q riverQueue) put(ctx context.Context, n int) error {
	_, err := q.client.Insert(ctx, newRiverArgs(n), nil)
	return err
}

func (q riverQueue) done(ctx context.Context, n int) error {
	var completed, others int
	err := q.pool.QueryRow(ctx, `SELECT count(*) FILTER (WHERE state = 'completed'),
		count(*) FILTER (WHERE state <> 'completed') FROM river_job`).Scan(&completed, &others)
	if err == nil && (completed != n || others != 0) {
		err = fmt.Errorf("%d completed, %d others; want %d completed", completed, others, n)
	}
	return err
}

// riverWorker posts what it is given.
type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	sender *sender
}

func (w *riverWorker) Work(ctx context.Context, callback *river.Job[riverArgs]) error {
	return w.sender.send(ctx, callback.Args.Number, []byte(callback.Args.Payload))
}

// workRiver is its worker's process. With River's defaults a client begins to work on at most ten times
// MaxWorkers in a second; these two intervals were the fastest of those tried.
func workRiver(words conversation, cfg processConfig) error {
	pool, err := riverPool(context.Background(), cfg.Store)
	if err != nil {
		return err
	}
	defer pool.Close()
	return work(words, cfg, func(s *sender) (func() error, error) {
		workers := river.NewWorkers()
		err := river.AddWorkerSafely(workers, &riverWorker{sender: s})
		client, err2 := river.NewClient(riverpgxv5.New(pool), &river.Config{
			FetchCooldown: 5 * time.Millisecond, FetchPollInterval: 50 * time.Millisecond,
			Logger: riverLogger(), Workers: workers,
			Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: cfg.Concurrency}},
		})
		if err := errors.Join(err, err2); err != nil {
			return nil, err
		}
		stop := func() error {
			ctx, cancel := context.WithTimeout(context.Background(), startTime)
			defer cancel()
			return client.Stop(ctx)
		}
		return stop, client.Start(context.Background())
	})
}
