// A module of its own without requirements, so that an application that imports it gets nothing else.
module github.com/seed-ff5a32d8/dispatcher/outbox

go 1.21
