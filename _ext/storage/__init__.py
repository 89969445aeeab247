"""What keeps the messages of a broker: `diskqueue`, in memory first and then on disk."""
