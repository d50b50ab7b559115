package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/trace"
)

// flushTime is how long the last spans may take to be exported at the end of a drain.
const flushTime = 2 * time.Second

// openTracer opens the tracer, if a collector is set.
func (srv *App) openTracer(ctx context.Context, registry prometheus.Registerer) (err error) {
	s := srv.Settings
	srv.tracer, err = trace.New(ctx, trace.Options{
		Endpoint: s.OTLPEndpoint, Headers: s.OTLPHeaders, Ratio: s.TraceSampleRatio, Version: srv.version,
		Logger: srv.Log, Metrics: process.Metrics{Registerer: registry},
	})
	srv.onClose(func() error { srv.tracer.Close(0); return nil })
	return err
}

// flushTraces exports the last spans, within the time that the drain has left.
func (srv *App) flushTraces() { srv.tracer.Close(min(flushTime, time.Until(srv.drainEnd))) }
