// Package cli has the commands that talk to a running server.
//
// Each command makes one or a few requests of the API and prints the response: as text, or with --json as the
// server wrote it. The server validates the values of flags. This package opens no database and no index.
package cli

import (
	"fmt"
	"runtime"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// Commands are the commands of this package in the grammar.
type Commands struct {
	Callback  CallbackCommand  `cmd:"" help:"Send, show, list, explain, change, cancel and retry callbacks."`
	Event     EventCommand     `cmd:"" help:"Send events to all endpoints that subscribe to their topic."`
	Poll      PollCommand      `cmd:"" help:"Track upstreams until their status is final: create, show, list and resolve polls."`
	Schedule  ScheduleCommand  `cmd:"" help:"Create, show, change, run and delete schedules, which create callbacks at the times of a cron."`
	Redrive   RedriveCommand   `cmd:"" help:"Retry, cancel, reschedule or move all callbacks that match a filter."`
	Outcomes  OutcomesCommand  `cmd:"" help:"Print the feed of finished callbacks, and follow it."`
	Reconcile ReconcileCommand `cmd:"" help:"Count the callbacks of a day, and compare them with your own list."`

	Endpoint EndpointCommand `cmd:"" help:"Create, show, change, pause and test endpoints, and rotate their secrets."`
	Lane     LaneCommand     `cmd:"" help:"Show lanes and their backlog; pause them and set their limits."`
	Pause    PauseCommand    `cmd:"" help:"Pause sending of a project. Callbacks are still accepted."`
	Resume   ResumeCommand   `cmd:"" help:"Resume a paused project."`

	Policy      PolicyCommand      `cmd:"" help:"Show the named policies: tiers, total durations and attempt times; store your own."`
	SuccessRule SuccessRuleCommand `cmd:"" help:"Show the named success rules; store your own."`
	Profile     ProfileCommand     `cmd:"" help:"Show the profiles, presets of policy, success rule and signer; store your own."`
	Signer      SignerCommand      `cmd:"" help:"Show the signers, their options and their secrets."`

	Project ProjectCommand `cmd:"" help:"Create and list projects, and set their defaults."`
	Key     KeyCommand     `cmd:"" help:"Create, list and revoke API keys."`
	Secrets SecretsCommand `cmd:"" help:"Print and rotate a project's secrets; re-encrypt stored data with a new master key."`
	Audit   AuditCommand   `cmd:"" help:"List changes and who made them, and verify the hash chain of the audit log."`

	Healthcheck HealthcheckCommand `cmd:"" help:"Ask the ops listener whether the server is healthy, for containers and service managers."`

	Stats   StatsCommand   `cmd:"" help:"Count callbacks by state, attempts and lane; show the sizes of the index."`
	Verify  VerifyCommand  `cmd:"" help:"Compare SQL with the index of a running server; exit with 1 if they differ."`
	Rebuild RebuildCommand `cmd:"" help:"Rebuild the index of a running server from SQL. The server keeps running."`
}

// VersionCommand prints the program's version.
type VersionCommand struct{}

// Run prints one line with the program's version, Go's version and the platform.
func (*VersionCommand) Run(c *console.Console) error {
	_, err := fmt.Fprintf(c.Out, "dispatcher %s %s %s/%s\n", c.Version, runtime.Version(), runtime.GOOS,
		runtime.GOARCH)
	return err
}
