// Package alerts breaks running dispatchers and waits for the alerts. A real Prometheus with the rules of
// deploy/prometheus scrapes the processes of all labs. Each lab is one installation, and so one job.
//
// A lab has the alerts that its fault must fire within a minute (DispatcherKeyRing: within two, because a
// process looks once a minute), and shows that no other critical alert fires. Alerts with a time threshold or
// a longer "for", and that about clocks, have their tests in deploy/prometheus/tests.
package alerts
