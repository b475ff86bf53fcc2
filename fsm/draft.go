package fsm

// FormatDraft is the draft of the formats of level 1. Until release 0.1.0 it rises in each commit that changes a golden
// file of a format, and nothing converts between drafts: a binary refuses folders, backups and members of another one.
// TestDraftRisesWithTheFormats of package arch fails when it was forgotten.
const FormatDraft uint32 = 3
